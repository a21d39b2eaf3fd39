/* SPDX-License-Identifier: Apache-2.0 */
/* interrupt.h: dying of a signal only after what was begun is undone. */
#ifndef INTERRUPT_H
#define INTERRUPT_H

#include <stdbool.h>

/* From here on SIGINT, SIGTERM and SIGHUP end system calls with EINTR instead of the
 * program; a second one ends it. */
void interrupt_catch(void);
bool interrupt_pending(void);
/* Dies of the signal that came, if one came. */
void interrupt_finish(void);

#endif
