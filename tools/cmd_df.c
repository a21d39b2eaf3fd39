/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_df.c: "shmstore-admin df": how full the partition is. Space is what statfs says; stores and objects are counted. */
#include <shmstore/inspect.h>
#include <stdio.h>

#include "admin.h"
#include "jsonout.h"
#include "message.h"
#include "opening.h"
#include "options.h"
#include "progress.h"
#include "table.h"

static void print_json(const struct shmstore_partition_info *info, const struct shmstore_usage *usage)
{
	struct json_object *o = json_new();

	json_text(o, "partition", info->path);
	json_text(o, "mount", info->mount);
	json_text(o, "uuid", info->uuid);
	json_flag(o, "tmpfs", info->tmpfs);
	json_text(o, "huge", info->huge);
	json_u64(o, "size", info->bytes_size);
	json_u64(o, "used", info->bytes_used);
	json_u64(o, "available", info->bytes_available);
	json_u64(o, "linked", usage->linked);
	json_u64(o, "pool", usage->pool);
	json_u64(o, "foreign", usage->foreign);
	json_u64(o, "stores", usage->n_stores);
	json_u64(o, "objects", usage->n_objects);
	json_u64(o, "leases", usage->n_leases);
	json_u64(o, "inodes_size", info->inodes_size);
	json_u64(o, "inodes_used", info->inodes_used);
	json_u64(o, "inodes_free", info->inodes_free);
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

int cmd_df(struct admin *a, int argc, char **argv)
{
	static const struct argp argp = {
		NULL,
		options_common,
		"df",
		"How full the partition is: space, inodes, stores, objects.",
		options_children,
		NULL,
		NULL,
	};
	struct command_line line = {.admin = a};
	struct shmstore_partition *p;
	struct shmstore_partition_info info = {.size = sizeof(info)};
	struct shmstore_usage usage;

	options_parse(&argp, &line, argc, argv);
	int status = opening_partition(a, &p);
	if (status)
		return status;
	progress_begin("df");
	int r = shmstore_partition_usage(p, 0, &usage);
	progress_end();
	if (r == 0)
		r = shmstore_partition_info(p, &info);
	if (r < 0)
		status = message_error(shmstore_partition_path(p), r);
	else if (a->json)
		print_json(&info, &usage);
	else
		print_table(a, &info, &usage);
	shmstore_partition_unref(p);
	return status;
}
