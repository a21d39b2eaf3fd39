/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packindex.h: an index from keys to places of packed objects. It is private memory of the store,
 * and can be made anew from the slots of its segments. Pure.
 *
 * A cell has 8 bytes: a part of the key's hash, and the place (the segment's number in the store,
 * and the slot). Keys are not kept: a search compares with the object's key.
 */
#ifndef SHMS_PACKINDEX_H
#define SHMS_PACKINDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHMS_PACKINDEX_SEGMENTS 255u

struct shms_packplace {
	uint32_t segment; /* < SHMS_PACKINDEX_SEGMENTS */
	uint32_t slot;    /* < 2^24 */
};

struct shms_packindex {
	uint64_t *cells;  /* 32 bits of the hash, a segment's number + 1, the slot; 0: empty */
	uint32_t n_cells; /* 0: none yet */
	uint32_t n;
};

/* Does the object at that place have the key? */
typedef bool shms_packindex_is(const struct shms_packplace *place, const void *key, size_t key_size, void *arg);

void shms_packindex_deinit(struct shms_packindex *x);
/* Makes room for one more cell, so that the next _add() cannot fail. 0, -ENOMEM. */
int shms_packindex_reserve(struct shms_packindex *x);
void shms_packindex_add(struct shms_packindex *x, const void *key, size_t key_size, struct shms_packplace place);
bool shms_packindex_find(const struct shms_packindex *x, const void *key, size_t key_size, shms_packindex_is *is,
			 void *arg, struct shms_packplace *ret);
/* Drops the key's cell with that place. False: there is none. */
bool shms_packindex_drop(struct shms_packindex *x, const void *key, size_t key_size, struct shms_packplace place);
/* Finds the next cell from *io_at on, which is 0 at first. False: there are no more. */
bool shms_packindex_next(const struct shms_packindex *x, uint32_t *io_at, struct shms_packplace *ret);

#endif
