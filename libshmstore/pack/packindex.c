/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packindex.c: open addressing with linear probing, at most four fifths full. When a cell goes,
 * the cells behind it move up, so that there are no tombstones.
 *
 * Every store that holds an object has a cell for it, so cells are to be few: the number of them grows by a quarter, and is no power of
 * two. A hash's place is that part of the table that it is of 2^32, so that growing keeps the order of cells, and goes through both tables from begin
 * to end.
 */
#include "packindex.h"

#include <errno.h>
#include <stdlib.h>

#include "xxh3.h"

#define CELLS_MIN    64u
#define CELLS_DOUBLE 4096u /* up to here a table grows by doubling */

static uint32_t hash_of(const void *key, size_t key_size)
{
	uint64_t h = XXH3_64bits(key, key_size);

	return (uint32_t)(h ^ h >> 32);
}

static uint64_t cell_of(uint32_t hash, struct shms_packplace place)
{
	return (uint64_t)hash << 32 | (uint64_t)(place.segment + 1) << 24 | place.slot;
}

static struct shms_packplace place_of(uint64_t cell)
{
	return (struct shms_packplace){(uint32_t)(cell >> 24 & 0xff) - 1, (uint32_t)cell & 0xffffff};
}

/* Where a search for that hash begins. */
static uint32_t home_of(uint32_t hash, uint32_t n_cells)
{
	return (uint32_t)((uint64_t)hash * n_cells >> 32);
}

static uint32_t after(uint32_t at, uint32_t n_cells)
{
	return at + 1 == n_cells ? 0 : at + 1;
}

/* How many steps a search takes from one cell to another. */
static uint32_t steps(uint32_t from, uint32_t to, uint32_t n_cells)
{
	return to >= from ? to - from : to + n_cells - from;
}

static void insert(uint64_t *cells, uint32_t n_cells, uint64_t cell)
{
	uint32_t at = home_of((uint32_t)(cell >> 32), n_cells);

	while (cells[at])
		at = after(at, n_cells);
	cells[at] = cell;
}

void shms_packindex_deinit(struct shms_packindex *x)
{
	free(x->cells);
	*x = (struct shms_packindex){0};
}

int shms_packindex_reserve(struct shms_packindex *x)
{
	uint32_t n_cells = !x->n_cells ? CELLS_MIN : x->n_cells < CELLS_DOUBLE ? x->n_cells * 2 : x->n_cells / 4 * 5;
	uint64_t *cells;

	if (x->n_cells && (x->n + 1) <= x->n_cells / 5 * 4)
		return 0;
	cells = calloc(n_cells, sizeof(*cells));
	if (!cells)
		return -ENOMEM;
	for (uint32_t i = 0; i < x->n_cells; i++) {
		if (x->cells[i])
			insert(cells, n_cells, x->cells[i]);
	}
	free(x->cells);
	x->cells = cells;
	x->n_cells = n_cells;
	return 0;
}

void shms_packindex_add(struct shms_packindex *x, const void *key, size_t key_size, struct shms_packplace place)
{
	insert(x->cells, x->n_cells, cell_of(hash_of(key, key_size), place));
	x->n++;
}

bool shms_packindex_find(const struct shms_packindex *x, const void *key, size_t key_size, shms_packindex_is *is,
			 void *arg, struct shms_packplace *ret)
{
	uint32_t hash = hash_of(key, key_size), at = home_of(hash, x->n_cells);

	for (uint32_t i = 0; i < x->n_cells; i++, at = after(at, x->n_cells)) {
		uint64_t cell = x->cells[at];
		struct shms_packplace place = place_of(cell);

		if (!cell)
			return false;
		if ((uint32_t)(cell >> 32) == hash && is(&place, key, key_size, arg)) {
			*ret = place;
			return true;
		}
	}
	return false;
}

/* Moves up the cells behind the empty one at, as far as a search would not find them any more. */
static void close_gap(struct shms_packindex *x, uint32_t at)
{
	uint32_t n = x->n_cells, gap = at;

	for (uint32_t i = after(at, n); x->cells[i]; i = after(i, n)) {
		uint32_t home = home_of((uint32_t)(x->cells[i] >> 32), n);

		/* If a cell's home is outside of (gap, i], a search for it comes by the gap. */
		if (steps(home, i, n) >= steps(gap, i, n)) {
			x->cells[gap] = x->cells[i];
			x->cells[i] = 0;
			gap = i;
		}
	}
}

bool shms_packindex_drop(struct shms_packindex *x, const void *key, size_t key_size, struct shms_packplace place)
{
	uint32_t hash = hash_of(key, key_size), at = home_of(hash, x->n_cells);
	uint64_t cell = cell_of(hash, place);

	for (uint32_t i = 0; i < x->n_cells; i++, at = after(at, x->n_cells)) {
		if (!x->cells[at])
			return false;
		if (x->cells[at] == cell) {
			x->cells[at] = 0;
			x->n--;
			close_gap(x, at);
			return true;
		}
	}
	return false;
}

bool shms_packindex_next(const struct shms_packindex *x, uint32_t *io_at, struct shms_packplace *ret)
{
	while (*io_at < x->n_cells) {
		uint64_t cell = x->cells[(*io_at)++];

		if (cell) {
			*ret = place_of(cell);
			return true;
		}
	}
	return false;
}
