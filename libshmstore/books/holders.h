/* SPDX-License-Identifier: Apache-2.0 */
/*
 * holders.h: who keeps memory of the partition's file system without a name: ghosts (deleted, still
 * mapped or open) and writers in flight (never named), as /proc tells.
 *
 * Not to be seen: files that are only in a socket's queue, in an io_uring or under a loop device,
 * and processes of other pid namespaces. Other users' processes are not to be seen without
 * privilege: n_unreadable counts them.
 */
#ifndef SHMS_HOLDERS_H
#define SHMS_HOLDERS_H

#include <shmstore/inspect.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "hash.h"

struct shms_holders;
struct shms_seglook;
struct shms_users;

/* Scans /proc. keys: find out the objects' keys too, for shms_holders_each(). 0, -EPERM (no
 * /proc), -ENOMEM, -EMFILE. */
int shms_holders_new(struct shmstore_partition *p, bool keys, struct shms_holders **ret);
struct shms_holders *shms_holders_free(struct shms_holders *h);

/*
 * The walk has met a name of this inode. Where the kernel would not tell us the link count of
 * what is mapped (no privilege), "(deleted)" may mean one name of several: then a name met
 * elsewhere says that it is no ghost.
 */
void shms_holders_named(struct shms_holders *h, uint64_t ino);

/*
 * The walk has met the only name of this inode in recycle/. true: somebody else maps it or has it
 * open: it is a ghost, and not the pool's.
 */
bool shms_holders_pooled(struct shms_holders *h, const struct stat *st);

/*
 * Adds bytes of files, each inode once, to ghosts and inflight, and processes to n_unreadable. Of
 * packed objects the books have the bytes (books.h). users: NULL, or each inode is added there too:
 * to its owner where the kernel told us, else to its first holder's user. 0, -ENOMEM.
 */
int shms_holders_add(const struct shms_holders *h, struct shmstore_usage *io,
		     struct shms_users *users);
/* Calls fn for every holder of every inode, and of every packed object. 0 or fn's. */
int shms_holders_each(struct shms_holders *h,
		      int (*fn)(const struct shmstore_holder *holder, void *arg), void *arg);

/* ---- of packed objects the segment has the name; a bit says who has a view ---- */

/* The walk has met that segment: notes who has views of its ghosts, and who
 * puts into it. 0, -ENOMEM. */
int shms_packedholds_segment(struct shms_holders *h, const struct shms_seglook *l, uint64_t now_ms);

/* A scan of /proc finds inodes without a name, and who holds them. For
 * holders.c and holdertable.c alone. */

#define SHMS_HOLD_COMMAND 64

struct shms_ghost {
	uint64_t ino;
	uint64_t bytes; /* blocks where exact, else what mappings cover */
	bool exact;     /* the kernel told us its blocks and that it has no link */
	/* it has a name: no ghost, unless that is in recycle/ and shms_holders_pooled() says so */
	bool named;
	bool pooled;    /* its one name may be in recycle/ */
	bool recycled;  /* its one name is */
	bool read;      /* one of its holds reads */
	bool published; /* it was known by a real name, or is a complete object */
	bool looked;    /* its header was read, or tried */
	bool reported;  /* in shms_holders_each() */
	bool owned;     /* uid is the file's owner; else its first holder's */
	uid_t uid;
	pid_t last_pid; /* of ... */
	size_t last;    /* ... its last hold */
	void *key;      /* NULL: unknown */
	size_t key_size;
	UT_hash_handle hh;
};

/* A process that has a ghost, or that maps a segment. Those of one process come together. */
struct shms_hold {
	struct shms_ghost *ghost; /* NULL: of a segment */
	uint64_t ino;             /* of the segment */
	pid_t pid;
	uid_t uid;
	uint64_t mapped, n_fds;
	bool reads; /* not only as the owner of a recycled file does */
	char *path; /* as the kernel tells it */
	char command[SHMS_HOLD_COMMAND];
};

/* One process's view of a packed object that nobody has by name; or its put of one. */
struct shms_packedhold {
	size_t hold; /* the process's, of the segment */
	uint64_t bytes, mapped;
	uint64_t generation;
	void *key; /* NULL: unknown */
	size_t key_size;
	bool first, inflight;
};

struct shms_holders {
	dev_t device;
	bool keys;
	struct shms_ghost *ghosts;
	struct shms_hold *holds;
	size_t n_holds, holds_size;
	struct shms_packedhold *packed;
	size_t n_packed, packed_size;
	uint64_t n_unsure; /* ghosts that are neither exact nor named */
	uint64_t n_unreadable;
};

/*
 * Lines of /proc/PID/maps, and the paths that the kernel tells of files that lost their
 * name. Pure.
 */

/* A mapping of a file that was deleted, or that stands in a store's recycle/, or of a segment. */
struct shms_mapping {
	unsigned long start, end;
	uint64_t offset, ino;
	const char *path;   /* into the line */
	size_t path_length; /* without " (deleted)" */
	bool deleted;
	bool recycled; /* not deleted: the path is in recycle/ */
	bool segment;  /* the path is a segment's, which has objects of many */
	/* shared and writable: of a file in the pool it is the owner's
	 * own, kept for the next put */
	bool writer;
};

/* Reads one line. device: as maps spell it, "major:minor " in hex. false: of another
 * device, or none of those. */
bool shms_mapping_parse(const char *line, size_t length, const char *device,
			struct shms_mapping *ret);
/* Takes " (deleted)" off the end; false where it is not there. */
bool shms_mapping_deleted(const char *path, size_t *io_length);

#endif
