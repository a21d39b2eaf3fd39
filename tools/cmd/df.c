/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_df.c: "shmstore-admin df": how full the partition is, and its disk tier. Space is what statfs says; stores and objects are counted.
 */
#include <inttypes.h>
#include <shmstore/inspect.h>
#include <stdio.h>

#include "admin.h"
#include "jsonout.h"
#include "message.h"
#include "opening.h"
#include "options.h"
#include "progress.h"
#include "table.h"
#include "tierfigures.h"
#include "tierstate.h"

/* tier: NULL: there is none, or it cannot be looked at. */
static void print_json(const struct shmstore_partition_info *info, const struct shmstore_usage *usage,
		       const struct shmstore_tier_info *tier)
{
	struct json_object *o = jsonmake_new();

	jsonmake_prose(o, "partition", info->path);
	jsonmake_prose(o, "mount", info->mount);
	jsonmake_prose(o, "uuid", info->uuid);
	jsonmake_flag(o, "tmpfs", info->tmpfs);
	jsonmake_prose(o, "huge", info->huge);
	jsonmake_u64(o, "size", info->bytes_size);
	jsonmake_u64(o, "used", info->bytes_used);
	jsonmake_u64(o, "available", info->bytes_available);
	jsonmake_u64(o, "linked", usage->linked);
	jsonmake_u64(o, "pool", usage->pool);
	jsonmake_u64(o, "stranded", usage->stranded);
	jsonmake_u64(o, "foreign", usage->foreign);
	jsonmake_u64(o, "stores", usage->n_stores);
	jsonmake_u64(o, "objects", usage->n_objects);
	jsonmake_u64(o, "leases", usage->n_leases);
	jsonmake_u64(o, "inodes_size", info->inodes_size);
	jsonmake_u64(o, "inodes_used", info->inodes_used);
	jsonmake_u64(o, "inodes_free", info->inodes_free);
	jsonmake_u64(o, "demoted", usage->n_demoted);
	jsonmake_child(o, "tier", tierstate_json(tier));
	json_print(o);
}

static void print_table(const struct admin *a, const struct shmstore_partition_info *info,
			const struct shmstore_usage *usage)
{
	static const struct table_column columns[] = {
		{"PARTITION", 0},           {"HUGE", 0},
		{"SIZE", TABLE_RIGHT},      {"USED", TABLE_RIGHT},
		{"AVAILABLE", TABLE_RIGHT}, {"FILL", TABLE_RIGHT},
		{"STORES", TABLE_RIGHT},    {"OBJECTS", TABLE_RIGHT},
		{"LEASES", TABLE_RIGHT},    {"INODES FREE", TABLE_RIGHT},
		{"FILL", TABLE_RIGHT},
	};
	struct table t;

	table_init(&t, a, columns, sizeof(columns) / sizeof(columns[0]));
	table_row(&t);
	table_text(&t, 0, info->path);
	table_text(&t, 1, !info->tmpfs ? "on disk" : info->huge[0] ? info->huge : "?");
	if (info->bytes_size) {
		table_size(&t, 2, info->bytes_size);
		table_size(&t, 4, info->bytes_available);
	} else {
		table_text(&t, 2, "unlimited");
		table_text(&t, 4, "-");
	}
	table_size(&t, 3, info->bytes_used);
	table_fill(&t, 5, info->bytes_used, info->bytes_size);
	table_count(&t, 6, usage->n_stores);
	table_count(&t, 7, usage->n_objects);
	table_count(&t, 8, usage->n_leases);
	if (info->inodes_size)
		table_count(&t, 9, info->inodes_free);
	else
		table_text(&t, 9, "unlimited");
	table_fill(&t, 10, info->inodes_used, info->inodes_size);
	table_finish(&t);
}

static void print_tier(const struct admin *a, const struct shmstore_tier_info *tier)
{
	static const struct table_column columns[] = {
		{"TIER", 0},
		{"LIMIT", TABLE_RIGHT},
		{"USED", TABLE_RIGHT},
		{"AVAILABLE", TABLE_RIGHT},
		{"FILL", TABLE_RIGHT},
		{"DEMOTED", TABLE_RIGHT},
		{"IN MEMORY TOO", TABLE_RIGHT},
		{"GARBAGE", TABLE_RIGHT},
	};
	uint64_t available = tierfigures_available(tier);
	struct table t;

	putchar('\n');
	table_init(&t, a, columns, sizeof(columns) / sizeof(columns[0]));
	table_row(&t);
	table_text(&t, 0, tier->config.path);
	if (tier->config.max)
		table_size(&t, 1, tier->config.max);
	else
		table_text(&t, 1, "the disk");
	table_size(&t, 2, tier->used);
	table_size(&t, 3, available);
	table_fill(&t, 4, tier->used, tier->used + available);
	table_size(&t, 5, tier->demoted);
	table_size(&t, 6, tier->clean);
	table_size(&t, 7, tier->orphans);
	table_finish(&t);
}

int cmd_df(struct admin *a, int argc, char **argv)
{
	static const struct argp argp = OPTIONS_ARGP(
		NULL, options_common, "df",
		"How full the partition is: space, inodes, stores, objects; and its disk tier, where it has one.");
	struct command_line line = {.admin = a};
	struct shmstore_partition *p;
	struct shmstore_partition_info info = {.size = sizeof(info)};
	struct shmstore_usage usage;
	static struct shmstore_tier_info tier;

	options_parse(&argp, &line, argc, argv);
	int status = opening_partition(a, &p);
	if (status)
		return status;
	progress_begin("df");
	int r = shmstore_partition_usage(p, 0, &usage);
	if (r == 0)
		r = shmstore_partition_info(p, &info);
	if (r < 0)
		status = message_detail(shmstore_partition_path(p), r);
	int has_tier = r < 0 ? 0 : tierstate_read(p, &tier);
	progress_end();
	if (r == 0 && a->json) {
		print_json(&info, &usage, has_tier > 0 ? &tier : NULL);
	} else if (r == 0) {
		print_table(a, &info, &usage);
		if (has_tier > 0)
			print_tier(a, &tier);
		if (usage.n_unreadable)
			message_say("%" PRIu64 " directories could not be looked into: what is in them is not counted",
				    usage.n_unreadable);
	}
	if (has_tier < 0)
		status = tierstate_explain(p, has_tier);
	shmstore_partition_unref(p);
	return status;
}
