/* SPDX-License-Identifier: Apache-2.0 */
/* gcclean.h: what gc does with a store's clean/. For gc's own modules. */
#ifndef SHMS_GCCLEAN_H
#define SHMS_GCCLEAN_H

struct shms_gc;
struct shms_gc_target;

/* 0, fn's value, -ENOMEM, -EMFILE. */
int shms_gc_clean(struct shms_gc *g, struct shms_gc_target *t);

#endif
