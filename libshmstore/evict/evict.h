/* SPDX-License-Identifier: Apache-2.0 */
/* evict.h: chooses (victim.h) and demotes until enough is free. */
#ifndef SHMS_EVICT_H
#define SHMS_EVICT_H

#include <shmstore/shmstore.h>
#include <stdbool.h>
#include <stdint.h>

/* For a put or a promote that found the partition full: frees bytes at least, of this store's own objects first, then of all of this user's.
 * True: something was freed, try again. Never called with a lock of the store held. */
bool shms_evict_for(struct shmstore *s, uint64_t bytes);

#endif
