/* SPDX-License-Identifier: Apache-2.0 */
/* gctable.c: the table that gc makes of its own steps, and reap of the daemon's. */
#include "gctable.h"

#include <stdio.h>
#include <string.h>

#include "human.h"

#define COLUMNS(X)                         \
	X(WHAT, "WHAT", 0)                 \
	X(BYTES, "FREES", TABLE_RIGHT)     \
	X(TIER, "ON DISK", TABLE_RIGHT)    \
	X(OBJECTS, "OBJECTS", TABLE_RIGHT) \
	X(PATH, "PATH", 0)                 \
	X(EVIDENCE, "BECAUSE", TABLE_WRAP)
TABLE_COLUMNS(columns, COLUMNS, N_COLUMNS);

void gctable_init(struct table *t, const struct admin *a, bool tier)
{
	struct table_column shown[N_COLUMNS];

	memcpy(shown, columns, sizeof(shown));
	if (!tier)
		shown[TIER].flags |= TABLE_HIDDEN;
	table_init(t, a, shown, N_COLUMNS);
}

void gctable_add(struct table *t, const struct gctable_row *row)
{
	table_row(t);
	table_text(t, WHAT, row->what);
	if (strcmp(row->what, "kept") == 0)
		table_color(t, WHAT, "cyan");
	table_size(t, BYTES, row->bytes);
	table_size(t, TIER, row->tier_bytes);
	table_count(t, OBJECTS, row->n_objects);
	table_text(t, PATH, row->path);
	table_text(t, EVIDENCE, row->evidence);
}

void gctable_total(const struct admin *a, const char *done, const struct gctable_sum *sum)
{
	char size[HUMAN_SIZE];

	printf("%s %s: ", done, human_bytes(sum->freed, a->bytes, size));
	printf("%s, ", human_count(sum->n_stores, "store", size));
	printf("%s, ", human_count(sum->n_leases, "lease", size));
	printf("%s\n", human_count(sum->n_files, "file", size));
	if (!sum->n_tier)
		return;
	printf("%s %s on disk: ", done, human_bytes(sum->tier_freed, a->bytes, size));
	printf("%s\n", human_count(sum->n_tier, "tier file", size));
}
