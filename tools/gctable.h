/* SPDX-License-Identifier: Apache-2.0 */
/* gctable.h: what gc and reap did, as a table: one row for each step, and the sum. */
#ifndef GCTABLE_H
#define GCTABLE_H

#include <stdint.h>

#include "table.h"

struct gctable_row {
	const char *what, *path, *evidence;
	uint64_t bytes, n_objects;
};

/* To be ended with table_finish(). */
void gctable_init(struct table *t, const struct admin *a);
void gctable_add(struct table *t, const struct gctable_row *row);
/* "freed 1.50 MiB: 1 store, 0 leases, 3 files". done: "freed" or "would free". */
void gctable_total(const struct admin *a, const char *done, uint64_t freed, uint64_t n_stores, uint64_t n_leases,
		   uint64_t n_files);

#endif
