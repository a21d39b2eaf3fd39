/* SPDX-License-Identifier: Apache-2.0 */
/*
 * damage.h: tier files as a test sees them from outside the library: whose they are, by the stubs'
 * texts; damage done to them, and the book of which are damaged now. A file that was written anew
 * under the same name is another file: the book goes by inodes.
 */
#ifndef DAMAGE_H
#define DAMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum damage_kind {
	DAMAGE_NONE,
	DAMAGE_FLIP,     /* one bit, anywhere */
	DAMAGE_HEAD,     /* one bit of the first page: superblock, key, table or padding */
	DAMAGE_TRUNCATE, /* to any length */
	DAMAGE_EXTEND,
	DAMAGE_SECTOR, /* 512 bytes are those of another place */
	DAMAGE_SWAP,   /* two tier files have each other's names */
	DAMAGE_REMOVE,
	N_DAMAGES,
};
extern const char *const damage_name[N_DAMAGES];

struct damage_book;

/* files: the directory of the tier files. NULL: out of memory. */
struct damage_book *damage_new(const char *files, uint64_t seed);
struct damage_book *damage_free(struct damage_book *b);
/* Damages one file that is whole, or two. DAMAGE_NONE: none is there. */
enum damage_kind damage_one(struct damage_book *b);
/* How the file of this id is damaged. */
enum damage_kind damage_of(struct damage_book *b, uint64_t id);
/* Tier files that are there, and of these, damaged ones (a removed one is not there). */
void damage_count(struct damage_book *b, size_t *ret_files, size_t *ret_damaged);

/* The id in a stub's text: of path, where that is a stub. */
bool damage_stub_id(const char *path, uint64_t *ret_id);

#endif
