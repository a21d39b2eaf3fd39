/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierscan.h: goes through a partition's tier files and says of each what it is: of a demoted
 * object, of one that is in memory as well, or of none. Reads directories only, and makes
 * none. For books, gc and tools.
 */
#ifndef SHMS_TIERSCAN_H
#define SHMS_TIERSCAN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "tier.h"
#include "tierformat.h"

enum shms_tierscan_what {
	SHMS_TIERSCAN_DEMOTED, /* the object is there only */
	SHMS_TIERSCAN_CLEAN,   /* and in memory */
	SHMS_TIERSCAN_ORPHAN,  /* nobody names it, nor ever will */
};

struct shms_tierscan_file {
	const struct shms_tier *user;
	const char *name; /* in files_fd */
	uint64_t id;      /* 0: one on its way, whose writer is dead */
	const struct stat *st;
	enum shms_tierscan_what what;
	struct shms_stub stub; /* not of an orphan */
};

struct shms_tierscan {
	const struct shms_inodes *clean; /* stubs that are in a clean/; NULL: the scan finds them */
	int (*file)(const struct shms_tierscan_file *file, void *arg);
	void *arg;
	/* result: directories that we may not look into, which are other users' */
	uint64_t n_unreadable;
};

/* 0, what file returned, -ENOMEM, -EMFILE, why an anchor could not be read; directories
 * that cannot be are counted. */
int shms_tierscan_run(struct shms_tierscan *s, struct shmstore_partition *p,
		      const struct shms_tier_config *config);

/* Opens the directory of the partition's tier files on the disk. The descriptor, or -errno. */
int shms_tierscan_root(const struct shmstore_partition *p, const struct shms_tier_config *config);
/*
 * Calls fn for every user that has a directory on either side, with the part as it is (tier.h: p,
 * uid, descriptors, closed). root_fd -1: there is none on the disk. Ends and returns as the scan.
 */
int shms_tierscan_users(struct shmstore_partition *p, int root_fd,
			int (*fn)(struct shms_tier *user, void *arg), void *arg,
			uint64_t *io_unreadable);
/* Is it the name of a tier file on its way? ret_writing: and its writer lives. */
bool shms_tierscan_tmp(int files_fd, const char *name, bool *ret_writing);

/* Adds the inodes of the stubs in every store's clean/ to clean: the stores' directories are read,
 * and no name is statted. As shms_walk_run(). */
int shms_tierscan_clean(struct shmstore_partition *p, struct shms_inodes *clean);

/*
 * The users' parts of a partition's disk tier for who looks at all of it: found as they
 * are, and nothing is made that is not there, unlike shms_tier_open().
 */

struct shms_tierfind {
	struct shmstore_partition *p;
	struct shms_tier_config read, *config; /* NULL: there is no tier */
	int files_root;        /* the directory of its files; -1: not there; SHMS_TIERFIND_CLOSED */
	struct shms_tier tier; /* of the user at hand */
};
#define SHMS_TIERFIND_CLOSED (-2) /* it may not be looked into */
#define SHMS_TIERFIND_INIT(partition)                                                     \
	{                                                                                 \
		.p = (partition), .files_root = -1, .tier = SHMS_TIER_PART(partition, 0), \
	}

/* shms_tierfind_close() is owed in any case. 0, also without a tier; -EPERM, -EBADMSG, -ENOTSUP (a
 * configuration that cannot be believed), -ENOMEM, -EMFILE. */
int shms_tierfind_open(struct shms_tierfind *f);
/* The same by a configuration that the caller knows of. 0, -ENOMEM, -EMFILE. */
int shms_tierfind_use(struct shms_tierfind *f, const struct shms_tier_config *config);
void shms_tierfind_close(struct shms_tierfind *f);
/* The user's part; valid until another's is asked for. Its files_fd is -1 where there is none.
 * NULL: none that we may work in. */
struct shms_tier *shms_tierfind_user(struct shms_tierfind *f, uid_t uid);
/* Has the stub its anchor and its tier file? 0; -EBADMSG (no), -EPERM (may not be looked into),
 * -EIO (its disk is away), with a reason: static text. */
int shms_tierfind_stub(struct shms_tierfind *f, const struct shms_stub *stub,
		       const char **ret_reason);

#endif
