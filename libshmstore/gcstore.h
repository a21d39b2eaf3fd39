/* SPDX-License-Identifier: Apache-2.0 */
/* gcstore.h: what gc does with one store. For gc's own modules. */
#ifndef SHMS_GCSTORE_H
#define SHMS_GCSTORE_H

struct shms_gc;
struct shms_gc_target;

/* All: 0, fn's value, -ENOMEM, -EMFILE. */
/* The owner lives. */
int shms_gc_live_store(struct shms_gc *g, struct shms_gc_target *t);
/* The owner is dead, we hold the lock, and t->page is read: it is to be kept, or it is not. */
int shms_gc_kept_store(struct shms_gc *g, struct shms_gc_target *t);
int shms_gc_dead_store(struct shms_gc *g, struct shms_gc_target *t);

#endif
