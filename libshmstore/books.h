/* SPDX-License-Identifier: Apache-2.0 */
/* books.h: sums over the names of a partition: each inode once, each store's share. */
#ifndef SHMS_BOOKS_H
#define SHMS_BOOKS_H

#include <shmstore/inspect.h>
#include <stdint.h>

struct shms_holders;
struct shms_page;
struct shms_walk_store;

/* Bytes unless n_. */
struct shms_books {
	uint64_t linked;   /* objects, leases and metadata */
	uint64_t metadata; /* pages, sidecars, marker, symlinks of peers, directories (on disk) */
	uint64_t pool;
	uint64_t foreign; /* in the partition; of the whole file system with SHMS_BOOKS_REST */
	uint64_t n_stores, n_objects, n_leases;
	uint64_t n_unreadable;
};

#define SHMS_BOOKS_REST (1u << 0)

/*
 * Walks the partition.
 *   fn        called for each store when its names are counted; may be NULL.
 *   holders   told of every inode that has a name; may be NULL.
 * 0, fn's, -ENOMEM, -EMFILE.
 */
int shms_books_take(struct shmstore_partition *p, unsigned flags,
		    int (*fn)(const struct shmstore_store_books *books, void *arg), void *arg,
		    struct shms_holders *holders, struct shms_books *ret);

/* The books of the one store open as storefd; ret->store is NULL. 0, -ENOENT (no store), -ENOMEM, -EMFILE. */
int shms_books_store(int storefd, struct shmstore_store_books *ret);

/* What is known of a store; strings point into s and page. */
void shms_books_info(const struct shms_walk_store *s, struct shms_page *page, struct shmstore_store_info *ret);

#endif
