/* SPDX-License-Identifier: Apache-2.0 */
/* evict.h: chooses (victim.h) and demotes until enough is free. */
#ifndef SHMS_EVICT_H
#define SHMS_EVICT_H

#include <shmstore/shmstore.h>
#include <stdbool.h>
#include <stdint.h>

/* For a put or a promote that found the partition full: frees bytes at least, of this store's own
 * objects first, then of all of this user's.
 * True: something was freed, try again. Never called with a lock of the store held. */
bool shms_evict_for(struct shmstore *s, uint64_t bytes);
/* Before a put takes memory of a full partition: waits as long as another process evicts for one of
 * its own, a tenth of a second at most. */
void shms_evict_after(struct shmstore_partition *p);

#endif
