/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nameslock.h: the exclusive lock over what the names in objects/ mean. Within the process store.names; and where the partition has a disk tier
 * also flock on objects/, since other processes may demote this store's objects then.
 */
#ifndef SHMS_NAMESLOCK_H
#define SHMS_NAMESLOCK_H

#include "handle.h"

/* 0, -ETIMEDOUT (another process holds it and does not go on). */
int shms_names_lock(struct shmstore *s);
void shms_names_unlock(struct shmstore *s);

/* The object's file, opened for reading: not one that is recycled meanwhile. -ENOENT, -ELOOP (a stub), -ETIMEDOUT (sys.h), -errno. */
int shms_names_open(struct shmstore *s, const char *name);

/* At calls that put or delete, with no lock held: takes part in the tier from when there is one. */
void shms_tier_look(struct shmstore *s);
static inline void shms_tier_notice(struct shmstore *s)
{
	if (!atomic_load_explicit(&s->tier_on, memory_order_relaxed))
		shms_tier_look(s);
}
/* At open: is it a store that took part before, or a partition with a tier? */
int shms_tier_join(struct shmstore *s);

#endif
