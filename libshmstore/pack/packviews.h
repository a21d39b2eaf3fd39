/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packviews.h: how many views a store has of each slot. Only slots with views take memory, since
 * most objects have none at most times. Pure.
 */
#ifndef SHMS_PACKVIEWS_H
#define SHMS_PACKVIEWS_H

#include <stdbool.h>
#include <stdint.h>

#include "packindex.h"

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
