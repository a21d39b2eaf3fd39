/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nameslock.h: the exclusive lock over what the names in objects/ mean. Within the process
 * store.names; and where the partition has a disk tier also flock on objects/, since other
 * processes may demote this store's objects then.
 */
#ifndef SHMS_NAMESLOCK_H
#define SHMS_NAMESLOCK_H

#include <stdbool.h>

#include "opened.h"
#include "sys.h"
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

/* ---- the moment from which other processes may change the names ------------------------------ */

#define SHMS_TIER_LOOK_MS 1000u

void shms_tier_look(struct shmstore *s);
/* At calls that put or delete, with no lock held: what time it is, and whether there is a tier, in
 * which the store takes part from then on. */
static inline void shms_tier_notice(struct shmstore *s)
{
	uint64_t now_ms = shms_lately_boot_ms();

	atomic_store_explicit(&s->called_ms, now_ms, memory_order_relaxed);
	if (!atomic_load_explicit(&s->tier_on, memory_order_relaxed) &&
	    now_ms - atomic_load_explicit(&s->tier_looked_ms, memory_order_relaxed) >=
		    SHMS_TIER_LOOK_MS)
		shms_tier_look(s);
}
/* At open: is it a store that took part before, or a partition with a tier? */
int shms_tier_join(struct shmstore *s);

/* ---- stubs, and clean copies of objects, as names; the lock is held in all of these ---------- */

/* Is that name a stub? */
bool shms_stub_is(int dirfd, const char *name);
/* Removes a stub, and its tier file with its last name. 0, -errno. */
int shms_stub_drop(struct shmstore *s, int dirfd, const char *name);
/* The object called name is no more: nor is its clean copy needed. */
void shms_clean_drop(struct shmstore *s, const char *name);
/* Renames over name in objects/, where a stub may be. 0, -errno. */
int shms_rename_over(struct shmstore *s, int dirfd, const char *from, const char *name);
/* Says that an object was used just now: its inode's time is the clock of eviction. */
void shms_tier_touch(struct shmstore *s, int fd);

#endif
