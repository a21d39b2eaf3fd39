/* SPDX-License-Identifier: Apache-2.0 */
/* holdertable.h: what a scan of /proc has found: inodes without a name, and who holds them. For
 * holders.c and holdertable.c alone. */
#ifndef SHMS_HOLDERTABLE_H
#define SHMS_HOLDERTABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "hash.h"
#include "holders.h"

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

#endif
