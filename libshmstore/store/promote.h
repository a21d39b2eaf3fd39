/* SPDX-License-Identifier: Apache-2.0 */
/* promote.h: a demoted object comes back to memory, once for all stores that hold its stub. */
#ifndef SHMS_PROMOTE_H
#define SHMS_PROMOTE_H

#include <stdbool.h>

#include "tier.h"
#include "tierstore.h"

struct shms_promote {
	struct shms_tier *t;
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
 * A descriptor that has the object's bytes at an offset, without bringing it back: the tier file
 * itself, checked, where it is raw; else a copy in private memory (only where copy is allowed).
 * -ENOSPC: it would need a copy. For readers that may not change the store, and for a full
 * partition. -EINVAL: it is another stub, or none, by now.
 */
int shms_promote_aside(struct shms_tier *t, int objects_fd, const char *name, bool copy,
		       struct shms_aside *ret);

#endif
