/* SPDX-License-Identifier: Apache-2.0 */
/* gcstore.h: what gc does with one store. For gc's own modules. */
#ifndef SHMS_GCSTORE_H
#define SHMS_GCSTORE_H

#include <shmstore/inspect.h>

struct shms_gc;
struct shms_gc_candidate;
struct shms_gc_target;

/* Opens the store or directory c. -ENOENT: there is none; -EPERM; -EMFILE, -ENOMEM. ret
 * is written on success only. */
int shms_gc_target_open(struct shms_gc *g, const struct shms_gc_candidate *c,
			struct shms_gc_target *ret);
void shms_gc_target_close(struct shms_gc_target *t);
/* Calls fn for each name in a part of a store. */
int shms_gc_each_name(struct shms_gc *g, struct shms_gc_target *t, const char *part,
		      int (*fn)(struct shms_gc *g, struct shms_gc_target *t, int dirfd,
				const char *name, void *arg),
		      void *arg);

/* Both: 0, fn's value, -ENOMEM, -EMFILE. */
/* The owner lives. */
int shms_gc_live_store(struct shms_gc *g, struct shms_gc_target *t);
/* The owner is dead, and we hold the lock: what its page says decides, which is in t->page then.
 * A kept store's lock ends. */
int shms_gc_locked_store(struct shms_gc *g, struct shms_gc_target *t, int *io_lock);

#endif
