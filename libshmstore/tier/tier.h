/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier.h: one user's part of a partition's disk tier, open.
 *
 *   <partition>/tier/config         the configuration: path, limits; text, 0444
 *   <partition>/tier/<uid>.used     what the user's tier files take, and are about to (tierroom.h)
 *   <partition>/tier/<uid>/         0700
 *     <id>.stub                     anchor of a tier file: a link to its stub (tierformat.h)
 *     <id>.object                   a link to the promoted object while others still hold its stub:
 *                                   they find it here, and need not read
 *     lock                          held (flock) by the one eviction that runs
 *   <path>/<partition's uuid>/      on the disk, 0700 (1777 where the partition is shared)
 *     partition                     text: which partition this is of, and which boot
 *     <uid>/                        0700
 *       <id>                        a tier file, 0400; <id> 16 hex digits
 *       tmp-<id>                    where the file system cannot make unnamed files: one on
 *                                   its way; flocked by its writer
 *
 * In each store that takes part there is clean/ beside objects/: the stubs of objects that are in
 * memory and whose tier file is good still. A stub moves between the two by an exchange with the
 * object, under the store's names lock: flock on objects/, which every process that takes a name
 * away, or changes what one means, holds. clean/ is there if and only if the store's owner does so.
 *
 * Order of things, so that a kill anywhere leaves no tier file without an anchor
 * and no name without its object:
 *   demote    stub into clean/, anchor, tier file, exchange, then the
 *             object's memory loses its name
 *   promote   object into clean/, exchange: the stub is in clean/ now
 *   release   the name; where only the anchor is left: tier file, resident, anchor
 * gc needs no walk: a tier file without an anchor is garbage, so is an anchor with one link.
 */
#ifndef SHMS_TIER_H
#define SHMS_TIER_H

#include <pthread.h>
#include <shmstore/shmstore.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "name.h"
#include "tierformat.h"
#include "tierroom.h"
#include "turns.h"

struct shms_engine;
struct shms_inodes;

#define SHMS_TIER_ENGINES 4

/* A partition's tier/config. */
struct shms_tier_config {
	char path[4096];
	uint64_t max, min_free;
	int level;
	bool fsync;
	unsigned high, low;
};

struct shms_tier {
	struct shmstore_partition *p;
	/* of the partition's own: by an earlier configuration, still in somebody's hands */
	struct shms_tier *older;
	bool kept;             /* by the partition: not to be closed */
	uint64_t config_inode; /* which configuration this is of */
	uid_t uid;
	int dir_fd;       /* <partition>/tier/<uid> */
	int files_fd;     /* the tier files' directory */
	char *files_path; /* its absolute path */
	struct shms_tier_config config;
	bool direct;                                    /* O_DIRECT works there */
	bool unnamed;                                   /* O_TMPFILE works there */
	pthread_mutex_t lock;                           /* of what follows */
	struct shms_engine *engines[SHMS_TIER_ENGINES]; /* at rest */
	pid_t pid;                                      /* whose engines they are */
	struct shms_tierroom room;
	struct shms_turns turns; /* for its lock */
	_Atomic bool stuck;      /* who waited for it last did so in vain */
	/* The part of a scan (tierscan.h) may not be looked into: neither directory is open. */
	bool closed;
};
/* A part that is looked at as it is: nothing is made, and a directory that is not there is -1. */
#define SHMS_TIER_PART(partition, user)                                        \
	{                                                                      \
		.p = (partition), .uid = (user), .dir_fd = -1, .files_fd = -1, \
	}

/*
 * Opens the part of uid (root: anybody's), making its directories. 0; -ENOENT (the partition has no
 * tier), -EPERM, -errno with shms_detail() (its directory is gone, say).
 */
int shms_tier_open(struct shmstore_partition *p, uid_t uid, struct shms_tier **ret);
struct shms_tier *shms_tier_close(struct shms_tier *t); /* NULL is fine. Returns NULL */
/* Our own part, opened once and kept by the partition: not to be closed. As shms_tier_open(). */
int shms_tier_own(struct shmstore_partition *p, struct shms_tier **ret);
/* The part of uid: our own, or one opened for the caller, who ends it. As shms_tier_open(). */
int shms_tier_of(struct shmstore_partition *p, uid_t uid, struct shms_tier **ret);
void shms_tier_done(struct shms_tier *t);
/* In a forked child: no thread that held its locks is there. */
void shms_tier_forked(struct shmstore_partition *p);
/* Has the partition a tier at all? One look at the file system. */
bool shms_tier_there(const struct shmstore_partition *p);

/* An engine for the calling thread, of no threads; give it back. NULL: out of memory. */
struct shms_engine *shms_tier_engine(struct shms_tier *t);
void shms_tier_engine_back(struct shms_tier *t, struct shms_engine *e);

/* The promoted object, for reading. -ENOENT: there is none; -ETIMEDOUT: a stopped one has it. */
int shms_tier_resident_open(const struct shms_tier *t, uint64_t id);

/* Opens a new, empty tier file. ret_name: "" where it is unnamed. 0, -errno with detail. */
int shms_tier_file_new(struct shms_tier *t, uint64_t id, char ret_name[SHMS_TIER_NAME],
		       int *ret_fd);
/* Gives it its name. */
int shms_tier_file_link(struct shms_tier *t, uint64_t id, int fd, const char *tmp_name);
/* Opens a tier file and reads and checks its header, also that it is the stub's. 0; -EBADMSG, -EIO,
 * -ENOMEM, -EMFILE with detail and path. */
int shms_tier_file_open(struct shms_tier *t, const struct shms_stub *stub, int *ret_fd,
			struct shms_tier_header *ret_header);
/* Is it there, of the right size? For a clean copy that is about to be all that there is. */
bool shms_tier_file_good(struct shms_tier *t, const struct shms_stub *stub);

/*
 * Removes the stub called name in dirfd and, if that was its last name, the tier file, the
 * resident and the anchor. The store's names are locked by the caller, where it is a
 * store's. 0, -ENOENT, -errno.
 */
int shms_tier_release(struct shms_tier *t, int dirfd, const char *name);
/* As above, the name gone already: stub_fd is the link itself. */
void shms_tier_released(struct shms_tier *t, int stub_fd, const struct shms_stub *stub);

/*
 * The lock of the one eviction, and of who demotes an object of several names, which holds the
 * names of more than one store. First come, first served among the threads that have t, and by
 * turns with other processes. wait_ms: how long to try; meanwhile tick is called about once in a
 * millisecond (NULL: it is not); other than 0 ends it. *ret_fd goes to shms_tier_unlock(). 0;
 * -EBUSY: others have it; -ECANCELED: tick said so; -errno.
 */
int shms_tier_lock(struct shms_tier *t, unsigned wait_ms, int (*tick)(void *arg), void *arg,
		   int *ret_fd);
/* With that lock, until it goes: the eviction is for a put, whose room no other put may take. */
void shms_tier_for_put(int fd);
/* A put, before it takes memory of a partition that has none to spare: waits until no
 * other process evicts for one. */
void shms_tier_after_put(struct shms_tier *t, unsigned wait_ms);
/* fd < 0: it was not locked. Returns -1. */
int shms_tier_unlock(struct shms_tier *t, int fd);

/* How long somebody else may hold a store's names: for a few renames, unless it was stopped. */
#define SHMS_TIER_NAMES_MS 1000u
/* a process that is not the owner says so often that it waits for them (page.c) */
#define SHMS_TIER_ASK_MS   10u
#define SHMS_TIER_GIVE_MS  5u /* and each of the owner's threads lets it go first for so long */
/* -ETIMEDOUT, with the sentence that says so. */
int shms_tier_names_held(void);
/* The store's names lock against other processes; objects_fd is an open descriptor of its objects/
 * (of one's own: the lock is the description's). Tries for a second. 0, -ETIMEDOUT, -errno. */
int shms_tier_lock_names(int objects_fd);
void shms_tier_unlock_names(int objects_fd);
/* Before a store's books are read: ends a move that was begun (page.c), unless its mover does. */
bool shms_tier_settle_names(int storefd);
/* flock(fd, LOCK_EX), tried for wait_ms. 0, -EBUSY, -errno. */
int shms_tier_flock(int fd, unsigned wait_ms);

/* Of a release: bytes unless n_. Added to. */
struct shms_tierdrop {
	uint64_t memory;  /* of residents whose last name went */
	uint64_t disk;    /* of tier files */
	uint64_t n_files; /* tier files */
};

/*
 * Removes the tier file, the resident and the anchor of an id that nobody names. gone: instead of
 * removing them, the set in which a dry run counts the names that would go; NULL: in truth. 0, or
 * -errno of the tier file, with the anchor left.
 */
int shms_tierdrop_forget(struct shms_tier *t, uint64_t id, struct shms_inodes *gone,
			 struct shms_tierdrop *io);
/*
 * Removes a name of a store, or of tier/, whose state is st, of a stub also the files that nobody
 * names then, as far as the disk lets it; t NULL: none of these. gc finds the rest. gone: as above.
 * 0, -ENOENT, -errno of the name.
 */
int shms_tierdrop_name(struct shms_tier *t, struct shms_inodes *gone, int dirfd, const char *name,
		       const struct stat *st, struct shms_tierdrop *io);

/* Reads tier/config. 0, -ENOENT (none), -EBADMSG, -EPERM (written by somebody whom the
 * partition does not belong to). */
int shms_tier_config_read(const struct shmstore_partition *p, struct shms_tier_config *ret);
/* The same of what was left under the other name: whole, where somebody was killed while he took
 * the tier away, or just before he set it. */
int shms_tier_config_read_left(const struct shmstore_partition *p, struct shms_tier_config *ret);
/* Pure: text to values and back. */
int shms_tier_config_parse(char *text, struct shms_tier_config *ret);
int shms_tier_config_format(const struct shms_tier_config *c, char *ret_text, size_t size);

#endif
