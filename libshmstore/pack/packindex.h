/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packindex.h: an index from keys to places of packed objects. It can be made anew from the slots
 * of the store's segments. The caller brings the lines' memory (packlines.h); the owner alone
 * changes them, and processes that only read the store search them meanwhile.
 *
 * Every store that holds an object has a cell for it, so a cell has 4 bytes: 8 bits of the key's
 * hash, and the place. Keys are not kept: a search compares with the object's key, and growth asks
 * for its hash. Pure.
 */
#ifndef SHMS_PACKINDEX_H
#define SHMS_PACKINDEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* their uuids fit into one page with what else is said of an index */
#define SHMS_PACKINDEX_SEGMENTS 251u
#define SHMS_PACKINDEX_SLOTS    65536u
#define SHMS_PACKINDEX_CELLS    15u

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

/* A cache line. */
struct shms_packline {
	_Atomic uint32_t cells[SHMS_PACKINDEX_CELLS]; /* tag, segment and slot; 0: empty */
	_Atomic uint32_t last; /* the line's version, and how many cells were passed on */
};
_Static_assert(sizeof(struct shms_packline) == 64, "a cache line");

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
typedef bool shms_packindex_is(const struct shms_packplace *place,
			       const struct shms_packhashed *key, void *arg);
/* The hashes of the keys of the objects at n places. */
typedef void shms_packindex_hashes(const struct shms_packplace *places, uint32_t n, uint64_t *ret,
				   void *arg);

/* Has the index no room for one more cell, how many lines does it want? 0: it has. */
uint32_t shms_packindex_wants(const struct shms_packindex *x);
/* Puts all cells into other lines, which are all zero; the old ones stay
 * as they are, the caller's. */
void shms_packindex_move(struct shms_packindex *x, struct shms_packline *lines, uint32_t n_lines,
			 shms_packindex_hashes *hashes_of, void *arg);
/* There is room. */
void shms_packindex_add(struct shms_packindex *x, uint64_t hash, struct shms_packplace place);
bool shms_packindex_find(const struct shms_packindex *x, const struct shms_packhashed *key,
			 shms_packindex_is *is, void *arg, struct shms_packplace *ret);
/* Is there a cell of that hash with that place? */
bool shms_packindex_has(const struct shms_packindex *x, uint64_t hash, struct shms_packplace place);
/* Drops the cell of that hash with that place. False: there is none. */
bool shms_packindex_drop(struct shms_packindex *x, uint64_t hash, struct shms_packplace place);
/* The cell of that hash with the place old means another one: a search of any process
 * finds the one or the other. */
void shms_packindex_replace(struct shms_packindex *x, uint64_t hash, struct shms_packplace old,
			    struct shms_packplace place);
/* Finds the next cell from *io_at on, which is 0 at first. False: there are no more. */
bool shms_packindex_next(const struct shms_packindex *x, uint32_t *io_at,
			 struct shms_packplace *ret);

/*
 * For who is not the owner. _look() calls try for each place that may have the key, and
 * returns its first value that is not 0; 0: the key was not there at some moment of the call,
 * if the lines are the store's still; -EAGAIN: they changed meanwhile. try must compare the
 * key, and hold what it takes.
 */
typedef int shms_packindex_try(struct shms_packplace place, const struct shms_packhashed *key,
			       void *arg);
int shms_packindex_look(const struct shms_packindex *x, const struct shms_packhashed *key,
			shms_packindex_try *try, void *arg);
/* Does a search that came to this line end in it? Asked before its cells are read. */
bool shms_packindex_ends(const struct shms_packline *line);
/* A line's version before its cells are read, and whether one of them went, or
 * got another place, since. */
uint32_t shms_packindex_version(const struct shms_packline *line);
bool shms_packindex_changed(const struct shms_packline *line, uint32_t version);

/*
 * packviews.c: how many views a store has of each slot. Only slots with views take memory, since
 * most objects have none at most times. Pure.
 */

struct shms_packviewed {
	uint32_t place; /* segment and slot in one number */
	uint32_t views; /* of the caller's meaning; 0: the cell is empty */
};

struct shms_packviews {
	struct shms_packviewed *cells;
	uint32_t n_cells; /* 0, or a power of two */
	uint32_t n;
};

void shms_packviews_deinit(struct shms_packviews *v);
/* Makes room for one more slot, so that the next _at() cannot fail. 0, -ENOMEM. */
int shms_packviews_reserve(struct shms_packviews *v);
/* The slot's word; NULL: it has none. It stays where it is until the next _reserve() or _drop(). */
uint32_t *shms_packviews_find(const struct shms_packviews *v, struct shms_packplace place);
/* The same; where it has none, one that is 0, which the caller sets to another value at once. */
uint32_t *shms_packviews_at(struct shms_packviews *v, struct shms_packplace place);
/* Takes the slot's word away, if it has one. */
void shms_packviews_drop(struct shms_packviews *v, struct shms_packplace place);
/*
 * Finds the next slot from *io_at on, which is 0 at first. If the caller drops it, *io_at is to be
 * one less for the next call. False: there are no more.
 */
bool shms_packviews_next(const struct shms_packviews *v, uint32_t *io_at,
			 struct shms_packplace *ret);

#endif
