/* SPDX-License-Identifier: Apache-2.0 */
/* gctable.h: what gc and reap did, as a table: one row for each step, and the sum. */
#ifndef GCTABLE_H
#define GCTABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "table.h"

struct gctable_row {
	const char *what, *path, *evidence;
	uint64_t bytes, tier_bytes, n_objects; /* tier_bytes: on the disk tier */
};

struct gctable_sum {
	uint64_t freed, n_stores, n_leases, n_files;
	uint64_t tier_freed, n_tier; /* on the disk tier */
};

/* To be ended with table_finish(). tier: with a column of what is freed on the disk tier. */
void gctable_init(struct table *t, const struct admin *a, bool tier);
void gctable_add(struct table *t, const struct gctable_row *row);
/* "freed 1.50 MiB: 1 store, 0 leases, 3 files"; and of the disk tier, where there was something. done: "freed" or "would free". */
void gctable_total(const struct admin *a, const char *done, const struct gctable_sum *sum);

#endif
