/* SPDX-License-Identifier: Apache-2.0 */
/* gctable.c: the table that gc makes of its own steps, and reap of the daemon's. */
#include "gctable.h"

#include "jsonin.h"

static const struct table_column columns[] = {
	{"WHAT", TABLE_STATE, "what"},          {"FREES", FIGURE_SIZE, "bytes"},
	{"ON DISK", FIGURE_SIZE, "tier_bytes"}, {"OBJECTS", FIGURE_COUNT, "objects"},
	{"PATH", FIGURE_TEXT, "path"},          {"BECAUSE", TABLE_WRAP, "evidence"},
};

void gctable_print(const struct admin *a, const struct json_object *document, bool tier)
{
	struct table t;

	table_init(&t, a, columns, sizeof(columns) / sizeof(columns[0]));
	if (!tier)
		table_hide(&t, "ON DISK");
	for (size_t i = 0; i < jsonin_count(document, "actions"); i++)
		table_object(&t, jsonin_at(document, "actions", i));
	table_finish(&t);
}

void gctable_total(const struct admin *a, const struct json_object *document)
{
	figure_print(document, a->bytes,
		     "[dry_run?would free|freed] {freed:size}: {stores:store}, {leases:lease}, "
		     "{objects:file}\n"
		     "[tier_files?[dry_run?would free|freed] {tier_freed:size} on disk: "
		     "{tier_files:tier file}\n]");
}
