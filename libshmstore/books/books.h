/* SPDX-License-Identifier: Apache-2.0 */
/* books.h: sums over the names of a partition: each inode once, each store's share. */
#ifndef SHMS_BOOKS_H
#define SHMS_BOOKS_H

#include <shmstore/inspect.h>
#include <stddef.h>
#include <stdint.h>

struct shms_holders;
struct shms_users;

#define SHMS_BOOKS_REST (1u << 0)

/* Call-backs and lists of a walk, besides its sums. Each may be NULL. */
struct shms_books_ask {
	unsigned flags; /* SHMS_BOOKS_* */
	/* For each store, when its names are counted. Other than 0 ends
	 * the walk and is returned. */
	int (*store)(const struct shmstore_store_books *books, void *arg);
	/* Now and then; other than 0 ends the walk with -ECANCELED. */
	int (*progress)(uint64_t n_names, void *arg);
	void *arg;
	struct shms_holders *holders; /* is told of every inode that has a name */
	/* to be added to: linked, pool, n_stores, n_demoted; with holders,
	 * ghosts and inflight of segments */
	struct shms_users *users;
	struct shms_inodes *clean; /* to be added to: the stubs in clean/ */
};

/*
 * Walks the partition. ret: the terms that names tell: linked, metadata, pool, stranded, ghosts and
 * inflight (of segments), foreign (in the partition; of the whole file system with
 * SHMS_BOOKS_REST), n_stores, n_objects, n_leases, n_demoted and n_unreadable; else zero. 0, what
 * store returned, -ECANCELED, -ENOMEM, -EMFILE.
 */
int shms_books_take(struct shmstore_partition *p, const struct shms_books_ask *ask,
		    struct shmstore_usage *ret);

/* The books of the one store open as storefd; ret->store is NULL. 0, -ENOENT (no
 * store), -ENOMEM, -EMFILE. */
int shms_books_store(int storefd, struct shmstore_store_books *ret);

/* Books by user: a small table, for walks that meet one user's files in runs. */
struct shms_users {
	struct shmstore_user_books *list;
	size_t n, size, last;
};

/* The entry of uid, zeroed but for size and uid where it is new; valid until the next
 * call. NULL: out of memory. */
struct shmstore_user_books *shms_users_get(struct shms_users *u, uid_t uid);

#endif
