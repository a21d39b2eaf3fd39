/* SPDX-License-Identifier: Apache-2.0 */
/*
 * walk.h: goes through every name of a partition, and on demand through
 * the rest of its file system.
 *
 * A store is any directory below the partition that holds a regular .store file, or a directory in
 * stores/ or inbox/ that we may not look into. The walk never follows a symlink and never leaves
 * the file system. A store's entries come in one run, in this order: page, objects/, clean/,
 * recycle/, handoff/, segments/, then what else its directory holds. The names of the disk tier
 * (tier.h) come before all stores.
 */
#ifndef SHMS_WALK_H
#define SHMS_WALK_H

#include <stdint.h>
#include <sys/stat.h>

#include "tierformat.h"

struct shmstore_partition;

enum shms_place {
	SHMS_PLACE_FOREIGN, /* not ours, wherever it lies */
	SHMS_PLACE_MARKER,
	SHMS_PLACE_PEER, /* a symlink in peers/ */
	SHMS_PLACE_PAGE,
	SHMS_PLACE_OBJECT,
	SHMS_PLACE_SIDECAR,
	SHMS_PLACE_LEASE, /* of an object, or of a stub */
	SHMS_PLACE_POOL,
	SHMS_PLACE_DIRECTORY, /* one of ours */
	SHMS_PLACE_STUB,      /* in objects/: a demoted object */
	SHMS_PLACE_CLEAN,     /* in clean/: the stub of an object that is in memory */
	SHMS_PLACE_MOVING,    /* in clean/: an object's file on its way to objects/, or out of it */
	SHMS_PLACE_TIER,      /* in tier/: the configuration, or a lock */
	SHMS_PLACE_ANCHOR,    /* in tier/<uid>/: the link that stands for the tier file */
	SHMS_PLACE_SEGMENT,   /* in segments/: of packed objects */
	SHMS_PLACE_INDEX,     /* of these */
	/* in tier/<uid>/: a promoted object that stores which hold its stub find there */
	SHMS_PLACE_RESIDENT,
};

struct shms_walk_store {
	const char *path;  /* absolute; valid during the call */
	const char *name;  /* its last component */
	const char *below; /* the part of path below the partition */
	uint32_t number;   /* 1, 2, ... in the order of finding */
	int parentfd;
	int fd; /* -1: may not be looked into */
	struct stat st;
};

struct shms_walk_entry {
	enum shms_place place;
	int dirfd;
	const char *name;
	const char *dir; /* absolute path of its directory; "" outside the partition */
	const struct stat *st;
	const struct shms_walk_store *store; /* NULL = in none */
	/* of a stub, a clean one, an anchor, a stub's lease; else NULL */
	const struct shms_stub *stub;
};

#define SHMS_WALK_ENTRIES (1u << 0) /* the names too, not only the stores */
#define SHMS_WALK_REST    (1u << 1) /* the rest of the file system too; implies SHMS_WALK_ENTRIES */

struct shms_walk {
	unsigned flags;
	/* Each may be NULL. A return other than 0 ends the walk and is returned. */
	int (*store)(const struct shms_walk_store *store, void *arg); /* before its entries */
	/* after them; not where fd is -1 */
	int (*store_end)(const struct shms_walk_store *store, void *arg);
	int (*entry)(const struct shms_walk_entry *entry, void *arg);
	/* A directory below the partition that may be a store and is none; number 0. */
	int (*other)(const struct shms_walk_store *dir, void *arg);
	/* A directory that is no store's, or a store's part, and may not be read.
	 * path as shms_walk_entry.dir. */
	int (*unreadable)(const char *path, const struct stat *st, int error, void *arg);
	void *arg;
	/* result: directories that could not be looked into, stores included */
	uint64_t n_unreadable;
};

/* 0, -ENOMEM, -EMFILE, or what a callback returned. */
int shms_walk_run(struct shms_walk *w, struct shmstore_partition *p);
/* The stores alone. */
int shms_walk_stores(struct shmstore_partition *p,
		     int (*fn)(const struct shms_walk_store *store, void *arg), void *arg);
/* The entries of one store, open as storefd; paths are relative to it. As
 * shms_walk_run(), or -ENOENT: no store. */
int shms_walk_one(struct shms_walk *w, int storefd);

#endif
