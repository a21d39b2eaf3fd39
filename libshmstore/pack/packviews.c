/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packviews.c: open addressing with linear probing, half full at most. When a cell goes, the cells
 * behind it move up. When room is asked for the table may shrink, so that a store that looked at
 * all of its objects at once does not pay for that ever after.
 */
#include <errno.h>
#include <stdlib.h>

#include "packindex.h"

#define CELLS_MIN 16u

static uint32_t number_of(struct shms_packplace place)
{
	return place.segment * SHMS_PACKINDEX_SLOTS + place.slot;
}

/* Where a search for that number begins. */
static uint32_t home_of(const struct shms_packviews *v, uint32_t number)
{
	return (uint32_t)(number * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (v->n_cells - 1);
}

/* The number's cell, or the empty one where it would be. There are cells. */
static struct shms_packviewed *cell_of(const struct shms_packviews *v, uint32_t number)
{
	uint32_t at = home_of(v, number);

	while (v->cells[at].views && v->cells[at].place != number)
		at = (at + 1) & (v->n_cells - 1);
	return &v->cells[at];
}

void shms_packviews_deinit(struct shms_packviews *v)
{
	free(v->cells);
	*v = (struct shms_packviews){0};
}

static int resize(struct shms_packviews *v, uint32_t n_cells)
{
	struct shms_packviews old = *v;

	v->cells = calloc(n_cells, sizeof(*v->cells));
	if (!v->cells) {
		*v = old;
		return -ENOMEM;
	}
	v->n_cells = n_cells;
	for (uint32_t i = 0; i < old.n_cells; i++) {
		if (old.cells[i].views)
			*cell_of(v, old.cells[i].place) = old.cells[i];
	}
	free(old.cells);
	return 0;
}

int shms_packviews_reserve(struct shms_packviews *v)
{
	if (v->n >= v->n_cells / 2)
		return resize(v, v->n_cells ? v->n_cells * 2 : CELLS_MIN);
	/* Without memory for a smaller table the large one does as well. */
	if (v->n < v->n_cells / 8 && v->n_cells > CELLS_MIN)
		(void)resize(v, v->n_cells / 2);
	return 0;
}

uint32_t *shms_packviews_find(const struct shms_packviews *v, struct shms_packplace place)
{
	struct shms_packviewed *cell = v->n ? cell_of(v, number_of(place)) : NULL;

	return cell && cell->views ? &cell->views : NULL;
}

uint32_t *shms_packviews_at(struct shms_packviews *v, struct shms_packplace place)
{
	struct shms_packviewed *cell = cell_of(v, number_of(place));

	if (!cell->views) {
		cell->place = number_of(place);
		v->n++;
	}
	return &cell->views;
}

/* Moves up the cells behind the empty one, as far as a search would not find them any more. */
static void close_gap(struct shms_packviews *v, uint32_t gap)
{
	uint32_t mask = v->n_cells - 1;

	for (uint32_t i = (gap + 1) & mask; v->cells[i].views; i = (i + 1) & mask) {
		uint32_t home = home_of(v, v->cells[i].place);

		/* If a cell's home is outside of (gap, i], a search for it comes by the gap. */
		if (((i - home) & mask) >= ((i - gap) & mask)) {
			v->cells[gap] = v->cells[i];
			v->cells[i].views = 0;
			gap = i;
		}
	}
}

void shms_packviews_drop(struct shms_packviews *v, struct shms_packplace place)
{
	struct shms_packviewed *cell = v->n ? cell_of(v, number_of(place)) : NULL;

	if (!cell || !cell->views)
		return;
	cell->views = 0;
	v->n--;
	close_gap(v, (uint32_t)(cell - v->cells));
}

bool shms_packviews_next(const struct shms_packviews *v, uint32_t *io_at,
			 struct shms_packplace *ret)
{
	while (*io_at < v->n_cells) {
		const struct shms_packviewed *cell = &v->cells[(*io_at)++];

		if (cell->views) {
			*ret = (struct shms_packplace){cell->place / SHMS_PACKINDEX_SLOTS,
						       cell->place % SHMS_PACKINDEX_SLOTS};
			return true;
		}
	}
	return false;
}
