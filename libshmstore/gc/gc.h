/* SPDX-License-Identifier: Apache-2.0 */
/* gc.h: what the rest of the library needs of the garbage collector. */
#ifndef SHMS_GC_H
#define SHMS_GC_H

struct shmstore_partition;

/* Removes the dead, unkept stores in stores/ and their expired leases: what opening a store and a
 * full partition do on the way. Cheap: looks at each store's lock, walks only dead ones. Errors
 * are ignored: gc says them. */
void shms_gc_sweep(struct shmstore_partition *p);
/* Of the disk tier what nobody names, and nothing is told. 0, -ENOMEM, -EMFILE. */
int shms_gc_tier_only(struct shmstore_partition *p);

#endif
