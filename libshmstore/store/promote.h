/* SPDX-License-Identifier: Apache-2.0 */
/* promote.h: a demoted object comes back to memory, once for all stores that hold its stub; and the
 * tier that it is in. */
#ifndef SHMS_PROMOTE_H
#define SHMS_PROMOTE_H

#include <stdbool.h>
#include <stdint.h>

struct shms_engine;
struct shms_tier;
struct shms_view_file;
struct shmstore;

/* The tier of the user whose object or stub the name in objects/ means: the partition's own, or for
 * root one opened for this. */
struct shms_tier_use {
	struct shms_tier *t;
	bool temporary;
};
int shms_tier_use(struct shmstore *s, const char *name, struct shms_tier_use *ret);
void shms_tier_unuse(struct shms_tier_use *u);

struct shms_promote {
	/* whose name it is; its credit is charged where it is the owner's handle */
	struct shmstore *s;
	const char *name; /* in objects/ */
	bool no_evict;
	bool no_wait;               /* where the arbiter would have it wait: -ENOSPC */
	struct shms_engine *engine; /* NULL: one of the tier's */
};

/* 0: the name means an object in memory now (or did a moment ago); -ENOENT: no such name;
 * else as shmstore_promote(). */
int shms_promote(const struct shms_promote *p);
/*
 * A demoted object for a get. ret->fd -1: it is in memory now, open it. Else its bytes are there,
 * at ret->offset, size of them: in the tier file itself, where that is raw and there is no room, or
 * the store is not to be changed; or in a copy in private memory. 0, or as shmstore_get().
 */
int shms_promote_fetch(struct shmstore *s, const char *name, struct shms_view_file *ret,
		       uint64_t *ret_size);

#endif
