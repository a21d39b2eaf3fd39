/* SPDX-License-Identifier: Apache-2.0 */
/* gcaway.h: what gc does with the tier files of partitions that are gone. For gc's own modules. */
#ifndef SHMS_GCAWAY_H
#define SHMS_GCAWAY_H

struct shms_gc;

/* The directories of other partitions below the same disk.path. 0, fn's value, -ENOMEM, -EMFILE. */
int shms_gc_away(struct shms_gc *g);

#endif
