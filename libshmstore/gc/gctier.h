/* SPDX-License-Identifier: Apache-2.0 */
/* gctier.h: what gc does with the disk tier. For gc's own modules. */
#ifndef SHMS_GCTIER_H
#define SHMS_GCTIER_H

struct shms_gc;
struct shmstore_partition;

/* Finds out whether there is a tier; shms_tierfind_close() of g->find is owed in any case. 0,
 * fn's value, -ENOMEM, -EMFILE. */
int shms_gc_tier_open(struct shms_gc *g);
/* Tier files, anchors and residents that nobody names. 0, fn's value, -ENOMEM, -EMFILE. */
int shms_gc_tier(struct shms_gc *g);
/* The directories of other partitions below the same disk.path. 0, fn's value, -ENOMEM, -EMFILE. */
int shms_gc_away(struct shms_gc *g);

/* This alone, and nothing is told. 0, -ENOMEM, -EMFILE. */
int shms_gc_tier_only(struct shmstore_partition *p);

#endif
