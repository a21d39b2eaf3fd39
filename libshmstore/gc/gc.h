/* SPDX-License-Identifier: Apache-2.0 */
/* gc.h: what the rest of the library needs of the garbage collector. */
#ifndef SHMS_GC_H
#define SHMS_GC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct shmstore;
struct shmstore_partition;

/* Removes the dead, unkept stores in stores/ and their expired leases: what opening a store and a
 * full partition do on the way. Cheap: looks at each store's lock, walks only dead ones. Errors
 * are ignored: gc says them. */
void shms_gc_sweep(struct shmstore_partition *p);
/* Of the disk tier what nobody names, and nothing is told. 0, -ENOMEM, -EMFILE. */
int shms_gc_tier_only(struct shmstore_partition *p);

/* ---- pool.c: memory that others keep and do not need, for a put that needs it now ------------ */

/*
 * Takes the cold files (recycle.h) of every store in stores/ of that user, and what its segments
 * have for no object, but of the one whose directory has the inode own. Returns the bytes that are
 * free now. *ret_again: as of shms_seguse_take().
 */
uint64_t shms_pool_take(struct shmstore_partition *p, uid_t uid, ino_t own, bool *ret_again);
/* Takes the cold files of the store that is open as storefd which nobody has used for age_ns. */
uint64_t shms_pool_take_one(int storefd, uint64_t age_ns);

/*
 * Ends the leases of files that the last owner of the store left, who was killed. Returns the bytes
 * that are free by that. The store's own leases stay.
 */
uint64_t shms_deadleases_end_former(struct shmstore *s);

struct shms_deadleases {
	uint64_t bytes;     /* of files that dead stores have leased, each inode once in a store */
	uint64_t expiry_ms; /* when the last of them ends, in ms of CLOCK_BOOTTIME */
};
/* Looks at all stores. */
void shms_deadleases_look(struct shmstore_partition *p, struct shms_deadleases *ret);

#endif
