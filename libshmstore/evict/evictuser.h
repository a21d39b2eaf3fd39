/* SPDX-License-Identifier: Apache-2.0 */
/* evictuser.h: whose objects an eviction may demote: each user's part of the tier, and the lock
 * that makes it the only one there. */
#ifndef SHMS_EVICTUSER_H
#define SHMS_EVICTUSER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "residents.h"
#include "tier.h"

struct shms_evict_user {
	uid_t uid;
	struct shms_tier *t;
	bool own;    /* t is the partition's, not ours to close */
	int lock_fd; /* -1: not locked */
	struct shms_residents residents;
	bool full;   /* its disk is: nothing more is written */
	bool broken; /* likewise: its disk gives errors */
};

struct shms_evict_users {
	struct shms_evict_user *v; /* by uid */
	size_t n;
};

/* uid: SHMSTORE_EVICT_ALL for all who have stores (root). 0, -ENOENT (no tier), -EPERM, -ENOMEM,
 * -EMFILE, -errno with detail. */
int shms_evict_users_open(struct shmstore_partition *p, uid_t uid, struct shms_evict_users *ret);
void shms_evict_users_close(struct shms_evict_users *u);
/*
 * Locks each; who is locked by another eviction is left out of it, unless it is waited for. tick:
 * as of shms_tier_lock(). 0, -errno.
 */
int shms_evict_users_lock(struct shms_evict_users *u, bool wait, int (*tick)(void *arg), void *arg);
/* After the lock: what residents there are. 0, -errno. */
int shms_evict_users_look(struct shms_evict_users *u);

#endif
