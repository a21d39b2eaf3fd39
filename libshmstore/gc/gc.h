/* SPDX-License-Identifier: Apache-2.0 */
/* gc.h: what the rest of the library needs of the garbage collector. */
#ifndef SHMS_GC_H
#define SHMS_GC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tier.h"

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

/*
 * teardown.c: takes a store apart, in an order that a kill at any point leaves for the next gc to
 * finish: objects/, clean/, recycle/ and segments/ are emptied first, then what leases have
 * expired, and only if no lease is left the directories and then the .store page. While .store is
 * there, unlocked, the store is plainly dead; a directory without .store is empty.
 *
 * A store that takes part in the disk tier has its names locked while they go (tier.h).
 * With the last name of a stub goes its tier file, where the tier is given; else its
 * anchor stays behind, for gc.
 */

struct shms_teardown {
	struct shmstore_partition *p; /* in: whose sums the store is in; NULL: it never had any */
	struct shms_tier *tier;       /* in: of the store's user; NULL: none that can be opened */
	bool end_leases;              /* in: of packed objects, too, before their time */
	/* in: a dry run's: the names that would go are counted in it, and none is removed, nor
	 * locked; NULL: they go */
	struct shms_inodes *gone;
	/* names of objects, demoted ones too, recycled and sidecar files that went */
	uint64_t n_objects;
	uint64_t n_leases; /* expired leases that went */
	/* leases that stay, and segments with some: the directory stays with them */
	uint64_t n_left;
	struct shms_tierdrop freed; /* by the last names that went */
	int error;                  /* first -errno; the rest was tried all the same */
};

/* For tier: our own part of the tier of the partition that the store lies
 * in, if the store is ours. */
struct shms_tier *shms_teardown_own_tier(struct shmstore_partition *p, int storefd);

/* Empties recycle/ of storefd. */
void shms_teardown_recycle(int storefd, struct shms_teardown *io);
/* Empties recycle/, objects/, clean/ and segments/ of storefd. In segments that others have, the
 * store's place is given back. */
void shms_teardown_objects(int storefd, struct shms_teardown *io);
/* Removes the leases of storefd that expired before now_ms (UINT64_MAX: all). */
void shms_teardown_leases(int storefd, uint64_t now_ms, struct shms_teardown *io);
/*
 * All of the store called name in parentfd, open as storefd. The caller holds the page's lock.
 * The directory itself is removed unless leases are left or it holds things that are not ours
 * (a Dask worker's directory).
 */
void shms_teardown_store(int parentfd, const char *name, int storefd, uint64_t now_ms,
			 struct shms_teardown *io);

#endif
