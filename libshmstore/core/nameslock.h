/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nameslock.h: the exclusive lock over what the names in objects/ mean. Within the process
 * store.names; and where the partition has a disk tier also flock on objects/, since other
 * processes may demote this store's objects then.
 */
#ifndef SHMS_NAMESLOCK_H
#define SHMS_NAMESLOCK_H

#include "handle.h"
#include "tier.h"

/* Of the next, where there is a tier; store.names is held, and after a failure no more. */
int shms_names_lock_tier(struct shmstore *s);

/* 0, -ETIMEDOUT (another process holds it and does not go on). */
static inline int shms_names_lock(struct shmstore *s)
{
	shms_fairlock_take(&s->names);
	return atomic_load_explicit(&s->tier_on, memory_order_relaxed) ? shms_names_lock_tier(s)
								       : 0;
}

static inline void shms_names_unlock(struct shmstore *s)
{
	if (atomic_load_explicit(&s->tier_on, memory_order_relaxed))
		shms_tier_unlock_names(s->objects_fd);
	shms_fairlock_release(&s->names);
}

/* The same of any store: s is our own handle's, or NULL: then by a descriptor of its objects/ that
 * is one's own (tier.h). */
int shms_names_lock_of(struct shmstore *s, int objects_fd);
void shms_names_unlock_of(struct shmstore *s, int objects_fd);

/* The object's file, opened for reading: not one that is recycled meanwhile. -ENOENT, -ELOOP (a
 * stub), -ETIMEDOUT (sys.h), -errno. */
int shms_names_open(struct shmstore *s, const char *name);

#endif
