/* SPDX-License-Identifier: Apache-2.0 */
/* onwait.h: the program may end a call that waits (shmstore_on_wait()). */
#ifndef SHMS_ONWAIT_H
#define SHMS_ONWAIT_H

#include <stdbool.h>
#include <stdint.h>

#define SHMS_INTERRUPT_NS UINT64_C(100000000) /* between two questions */

/* Asks the program. No lock is held: what it asks may wait for a thread that is in a call. */
bool shms_interrupted(void);

#endif
