/* SPDX-License-Identifier: Apache-2.0 */
/* inodes.h: a set of inodes that were met under more than one name, for books
 * that count each inode once. */
#ifndef SHMS_INODES_H
#define SHMS_INODES_H

#include <stdint.h>

/* Kinds of names, in rising order of precedence: an inode counts as the
 * highest kind of its names. */
enum shms_inode_kind {
	SHMS_INODE_FOREIGN,
	SHMS_INODE_POOL,
	SHMS_INODE_METADATA,
	SHMS_INODE_LINKED,
};

struct shms_inode {
	uint64_t ino;
	uint64_t bytes;
	uint32_t store;  /* number of the store that met it last; 0 = none */
	uint32_t n_here; /* its names met in that store */
	union {
		uint32_t n_gone; /* for gc: names of it that a plan takes away */
		uint32_t uid;    /* for books: its owner */
		uint32_t at;     /* for evictions: which candidate it is */
	};
	uint8_t kind;        /* enum shms_inode_kind */
	uint8_t n_residents; /* for books: so many of its names are the disk tier's: 1, seldom 2 */
};

struct shms_inodes;

struct shms_inodes *shms_inodes_new(void); /* NULL: out of memory */
struct shms_inodes *shms_inodes_free(struct shms_inodes *s);
/* The entry of ino, zeroed but for ino where it is new. NULL: out of memory. Valid
 * until shms_inodes_free(). */
struct shms_inode *shms_inodes_get(struct shms_inodes *s, uint64_t ino);
/* The entry of ino; NULL: there is none. */
struct shms_inode *shms_inodes_find(const struct shms_inodes *s, uint64_t ino);
/* All entries, in the order of their making: start with *io_cursor = 0; NULL at the end. */
const struct shms_inode *shms_inodes_next(const struct shms_inodes *s, uint64_t *io_cursor);

#endif
