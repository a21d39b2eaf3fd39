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
#include "victim.h"

struct shmstore_partition;

/* Kept at once; of more the half used least recently is, and .cut says so: look
 * again when they are gone. */
#define SHMS_CANDIDATES_MAX 65536u

struct shms_candidate_store {
	uint32_t below; /* text: its directory, below the partition */
	uint64_t inode; /* of that directory */
	bool takes_part;
	bool own;     /* the one that wants the room */
	uint64_t uss; /* bytes that no other store links */
	/* CLOCK_REALTIME when it last put, got or deleted anything, as far as its files tell */
	int64_t used_ns;
	/* of a few of its tier files: bytes on the disk, and of the objects */
	uint64_t stored, original;
	unsigned n_sampled;
};

struct shms_candidate_name {
	uint32_t store;
	uint32_t name; /* text */
	uint32_t next; /* 1 + the next name of this object; 0 = none */
};

struct shms_candidate {
	uint64_t inode;
	uint64_t bytes;
	int64_t used_ns; /* CLOCK_REALTIME */
	uint64_t n_links;
	uint32_t n_names;
	uint32_t first;       /* 1 + its first name */
	uint32_t user;        /* index */
	uint32_t n_clean;     /* names that have a clean copy beside them */
	uint32_t n_residents; /* of its links */
	bool pinned;
};

struct shms_candidates {
	struct shms_candidate *v;
	struct shms_candidate_name *names;
	struct shms_candidate_store *stores;
	char *text;
	size_t n, n_names, n_stores, n_text; /* first unused; their sizes: */
	size_t v_size, names_size, stores_size, text_size;
	bool cut;
};

/* own_inode: the directory of the store that wants the room; 0 = none. 0, -ENOMEM, -EMFILE. */
int shms_candidates_find(struct shmstore_partition *p, const struct shms_evict_user *users,
			 size_t n_users, uint64_t own_inode, struct shms_candidates *ret);
void shms_candidates_deinit(struct shms_candidates *c);

static inline const char *shms_candidates_text(const struct shms_candidates *c, uint32_t at)
{
	return c->text + at;
}
/* The candidates as victims, whose ids are indices into c->v. size: bytes of the partition. *ret
 * is to be freed. 0, -ENOMEM. */
int shms_weigh(struct shms_candidates *c, uint64_t size, int64_t now_ns, struct shms_victim **ret,
	       size_t *ret_n);

#endif
