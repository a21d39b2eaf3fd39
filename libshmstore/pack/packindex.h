/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packindex.h: an index from keys to places of packed objects. It is private memory of the store,
 * and can be made anew from the slots of its segments.
 *
 * Every store that holds an object has a cell for it, so a cell has 4 bytes: 8 bits of the key's
 * hash, and the place. Keys are not kept: a search compares with the object's key, and growth asks
 * for its hash.
 */
#ifndef SHMS_PACKINDEX_H
#define SHMS_PACKINDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHMS_PACKINDEX_SEGMENTS 255u
#define SHMS_PACKINDEX_SLOTS    65536u

struct shms_packplace {
	uint32_t segment; /* < SHMS_PACKINDEX_SEGMENTS */
	uint32_t slot;    /* < SHMS_PACKINDEX_SLOTS */
};

/* A key with what is computed of it once in a call. The caller's bytes. */
struct shms_packhashed {
	const void *key;
	size_t size;
	uint64_t words[2]; /* of a key that fits into a slot: its bytes, and zeros */
	uint64_t hash;
};

struct shms_packline; /* a cache line of cells */

struct shms_packindex {
	struct shms_packline *lines;
	uint32_t n_lines; /* 0: none yet */
	uint32_t n;
};

struct shms_packhashed shms_packhash(const void *key, size_t size);
/* Its words alone: a key that fits into a slot, in two words, with zeros behind it. */
void shms_packhash_pad(const void *bytes, size_t size, uint64_t ret[2]);
/* The hash of a key of so many bytes that fits into a slot. */
uint64_t shms_packhash_words(const uint64_t words[2], size_t size);

/* Does the object at that place have the key? */
typedef bool shms_packindex_is(const struct shms_packplace *place, const struct shms_packhashed *key, void *arg);
/* The hashes of the keys of the objects at n places. */
typedef void shms_packindex_hashes(const struct shms_packplace *places, uint32_t n, uint64_t *ret, void *arg);

void shms_packindex_deinit(struct shms_packindex *x);
/* Makes room for one more cell, so that the next _add() cannot fail. 0, -ENOMEM. */
int shms_packindex_reserve(struct shms_packindex *x, shms_packindex_hashes *hashes_of, void *arg);
void shms_packindex_add(struct shms_packindex *x, uint64_t hash, struct shms_packplace place);
bool shms_packindex_find(const struct shms_packindex *x, const struct shms_packhashed *key, shms_packindex_is *is,
			 void *arg, struct shms_packplace *ret);
/* Drops the cell of that hash with that place. False: there is none. */
bool shms_packindex_drop(struct shms_packindex *x, uint64_t hash, struct shms_packplace place);
/* Finds the next cell from *io_at on, which is 0 at first. False: there are no more. */
bool shms_packindex_next(const struct shms_packindex *x, uint32_t *io_at, struct shms_packplace *ret);

#endif
