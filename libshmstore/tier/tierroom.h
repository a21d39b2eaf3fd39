/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierroom.h: keeps the disk tier within its limits, with several processes and users at once and
 * after a kill. A writer first claims the most that its tier file may take; when the file has its
 * name, the claim becomes its real size; when the file is removed, the room is given back.
 *
 * Each user has an account, an empty file beside the partition's
 * configuration, whose times are numbers:
 *
 *   <partition>/tier/<uid>.used     0600, that user's
 *     mtime, seconds                bytes of the user's tier files and of claims
 *                                   on them: never less than that
 *     mtime, nanoseconds            when it was counted last: milliseconds of CLOCK_BOOTTIME,
 *                                   below 10^9
 *     atime, seconds                bytes of the claims
 *
 * Times, because they take no memory where it is full, change together in one call, may be looked
 * at by those who may not open the file, and are no length, which RLIMIT_FSIZE would end a process
 * for. It is changed under its flock.
 *
 * A kill leaves the account too high. gc, or a refusal, counts it anew: the user's files, and
 * claims of the living, who hold an OFD lock on as many bytes of the file as they claim.
 */
#ifndef SHMS_TIERROOM_H
#define SHMS_TIERROOM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

struct shms_tier;

/* The user's account as an open tier has it. All zero: not opened yet. */
struct shms_tierroom {
	pthread_mutex_t lock; /* of what follows */
	bool open;
	int fd;
	pid_t pid;              /* whose descriptor it is: a child's locks would be its parent's */
	uint64_t base, claimed; /* the range that is locked for our claims */
};

/* Bytes that a tier file takes from the limits: its length, or its blocks if those are more. */
static inline uint64_t shms_tierroom_of(const struct stat *st)
{
	uint64_t blocks = (uint64_t)st->st_blocks * 512,
		 size = ((uint64_t)st->st_size + 511) & ~UINT64_C(511);

	return blocks > size ? blocks : size;
}

/* Claim for a file of that size: a file system's lists of its blocks count with it. */
static inline uint64_t shms_tierroom_need(uint64_t size)
{
	return size + size / 1024 + 8192;
}

/* Takes room on the disk for a file that is about to be written, beside others, until it is given
 * back. 0, or -ENOSPC with the detail "disk full: ...", -errno with detail. */
int shms_tier_claim(struct shms_tier *t, uint64_t bytes);
/* Ends a claim. taken: of it, what lies on the disk under its name now, or did
 * until somebody removed it. */
void shms_tier_settle(struct shms_tier *t, uint64_t claimed, uint64_t taken);
/* Removes the file of that name from the user's directory on the disk and gives its room back.
 * ret: what it was. 0, -errno. */
int shms_tierroom_unlink(struct shms_tier *t, const char *name, struct stat *ret);
/* Counts the user's account anew, if there is one. */
void shms_tierroom_recount(struct shms_tier *t);
/* Removes the accounts when the tier is taken away. tier_fd: <partition>/tier. */
void shms_tierroom_remove(int tier_fd);

void shms_tierroom_close(struct shms_tier *t);
/* In a forked child: the claims are its parent's. */
void shms_tierroom_forked(struct shms_tier *t);

/*
 * tierdrop.c: residents, the links tier/<uid>/<id>.object: promoted objects whose stub has names in
 * other stores still (tier.h), and demoted ones that somebody mapped when they were demoted. One
 * whose object nobody names any more costs memory for a promote that may never come.
 */

struct shms_resident {
	uint64_t inode;
	uint64_t id;
	uint64_t bytes;
	uint64_t n_links;
};

struct shms_residents {
	struct shms_resident *v; /* by inode */
	size_t n;
};

/* All there are now. 0, -ENOMEM, -EMFILE, -errno. */
int shms_residents_list(struct shms_tier *t, struct shms_residents *ret);
void shms_residents_deinit(struct shms_residents *r);
/* How many are links of this inode: one, or more where a tier file was damaged and written anew. */
size_t shms_residents_count(const struct shms_residents *r, uint64_t inode);
/* Removes one of the n residents of an object that has no other name and that nobody has open or
 * maps. Bytes freed; 0: it stays, or another one is left. *ret_held: for its users only. */
uint64_t shms_residents_drop(struct shms_tier *t, const struct shms_resident *r, size_t n,
			     bool *ret_held);

#endif
