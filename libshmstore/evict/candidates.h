/* SPDX-License-Identifier: Apache-2.0 */
/*
 * candidates.h: what could be demoted: by one walk of the partition, each object of the given users
 * with all its names, and what is known of the stores that they are in.
 *
 * An object is a candidate if every name that its inode has was met in stores of its owner that
 * take part (tier.h), but for one that a resident is. Pinned ones are found too, for their clean
 * copies. So one with a lease, or with a name that we may not see, is none.
 */
#ifndef SHMS_CANDIDATES_H
#define SHMS_CANDIDATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "evict.h"

/* Kept at once; of more the half used least recently is, and .cut says so: look
 * again when they are gone. */
#define SHMS_CANDIDATES_MAX 65536u

struct shms_candidate_store {
	char *below;    /* its directory, below the partition */
	uint64_t inode; /* of that directory */
	bool takes_part;
	bool own;     /* the one that wants the room */
	uint64_t uss; /* bytes that no other store links */
	/* CLOCK_REALTIME when it last put, got or deleted anything, as far as its files tell */
	int64_t used_ns;
	/* of a few of its tier files: bytes on the disk, and of the objects */
	uint64_t stored, original;
	unsigned n_sampled;
	/* Opened when first needed. The descriptors are our own, so that a lock taken by them is
	 * not the store handle's. */
	int objects_fd, clean_fd; /* -1: not open */
	uint32_t n_use;
	bool stuck; /* its names could not be locked: that was waited for once, and is not again */
};

struct shms_candidate_name {
	struct shms_candidate_name *next; /* of this object */
	uint32_t store;
	char name[];
};

struct shms_candidate {
	uint64_t inode;
	uint64_t bytes;
	int64_t used_ns; /* CLOCK_REALTIME */
	uint64_t n_links;
	struct shms_candidate_name *names;
	uint32_t n_names;
	uint32_t user;        /* index */
	uint32_t n_clean;     /* names that have a clean copy beside them */
	uint32_t n_residents; /* of its links */
	bool pinned;
};

struct shms_candidates {
	struct shmstore_partition *p;
	struct shms_candidate *v;
	struct shms_candidate_store *stores;
	size_t n, n_stores; /* first unused; their sizes: */
	size_t v_size, stores_size;
	uint32_t n_open; /* stores */
	bool cut;
};

/*
 * own_inode: the directory of the store that wants the room; 0 = none. only: the one inode that is
 * looked for, whosever stores link it; 0: of the users' all. 0, -ENOMEM, -EMFILE.
 */
int shms_candidates_find(struct shmstore_partition *p, const struct shms_evict_user *users,
			 size_t n_users, uint64_t own_inode, uint64_t only,
			 struct shms_candidates *ret);
void shms_candidates_deinit(struct shms_candidates *c);
/* *ret stays open until it is given back. 0, -ENOENT (the store has gone, or does not
 * take part), -EMFILE, -errno. */
int shms_candidates_open(struct shms_candidates *c, uint32_t store,
			 const struct shms_candidate_store **ret);
void shms_candidates_close(struct shms_candidates *c, uint32_t store);
/*
 * Sets the names of d to those of candidate i, with its stores open; s: the handle of the own
 * store, or NULL. _end(), which frees the names, is owed in any case. 0, -ENOMEM, or as
 * shms_candidates_open().
 */
struct shms_demote;
int shms_candidates_names(struct shms_candidates *c, size_t i, struct shmstore *s,
			  struct shms_demote *d);
void shms_candidates_names_end(struct shms_candidates *c, size_t i, struct shms_demote *d);

/* The candidates as victims, whose ids are indices into c->v. size: bytes of the partition. *ret
 * is to be freed. 0, -ENOMEM. */
int shms_weigh(struct shms_candidates *c, uint64_t size, int64_t now_ns, struct shms_victim **ret,
	       size_t *ret_n);

#endif
