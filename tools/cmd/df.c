/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_df.c: "shmstore-admin df": how full the partition is, and its disk tier. Space is what statfs
 * says; stores and objects are counted.
 */
#include <inttypes.h>
#include <shmstore/inspect.h>
#include <stdio.h>

#include "admin.h"
#include "fields.h"
#include "jsonin.h"
#include "jsonout.h"
#include "message.h"
#include "opening.h"
#include "options.h"
#include "progress.h"
#include "table.h"
#include "tierstate.h"

static const struct table_column columns[] = {
	{"PARTITION", FIGURE_TEXT, "partition"},
	{"HUGE", 0, "[tmpfs?[huge?{huge}|?]|on disk]"},
	{"SIZE", FIGURE_SIZE | TABLE_UNLESS_0, "size", "unlimited"},
	{"USED", FIGURE_SIZE, "used"},
	{"AVAILABLE", TABLE_RIGHT, "[size?{available:size}|-]"},
	{"FILL", TABLE_FILL, "used/size"},
	{"STORES", FIGURE_COUNT, "stores"},
	{"OBJECTS", FIGURE_COUNT, "objects"},
	{"LEASES", FIGURE_COUNT, "leases"},
	{"INODES FREE", TABLE_RIGHT, "[inodes_size?{inodes_free}|unlimited]"},
	{"FILL", TABLE_FILL, "inodes_used/inodes_size"},
};

static const struct table_column tier_columns[] = {
	{"TIER", FIGURE_TEXT, "path"},
	{"LIMIT", FIGURE_SIZE | TABLE_UNLESS_0, "max", "the disk"},
	{"USED", FIGURE_SIZE, "used"},
	{"AVAILABLE", FIGURE_SIZE, "available"},
	{"FILL", TABLE_FILL, "used/used+available"},
	{"DEMOTED", FIGURE_SIZE, "demoted"},
	{"IN MEMORY TOO", FIGURE_SIZE, "clean"},
	{"GARBAGE", FIGURE_SIZE, "orphans"},
};

static void print_text(const struct admin *a, const struct json_object *o)
{
	TABLE_ONE(a, columns, o);
	if (!jsonin_has(o, "tier"))
		return;
	putchar('\n');
	TABLE_ONE(a, tier_columns, jsonin_object(o, "tier"));
}

int cmd_df(struct admin *a, int argc, char **argv)
{
	struct shmstore_partition_info info = {.size = sizeof(info)};
	struct shmstore_usage usage;
	static struct shmstore_tier_info tier;

	OPTIONS_PARSE(a, argc, argv, "df",
		      "How full the partition is: space, inodes, stores, objects; and its disk "
		      "tier, where it has one.");
	_partition_ struct shmstore_partition *p = opening_partition(a);
	progress_begin("df");
	int r = shmstore_partition_usage(p, 0, &usage);
	if (r == 0)
		r = shmstore_partition_info(p, &info);
	int has_tier = r < 0 ? 0 : tierstate_read(p, &tier);
	progress_end();
	if (r < 0)
		return message_detail(shmstore_partition_path(p), r);
	struct json_object *o = jsonmake_new();
	fields_of(o, &info, FIELD_AS(FIELD_PROSE, path, "partition"), PROSE(mount),
		  FIELD_AS(FIELD_PROSE_ARRAY, uuid, "uuid"), SAME(tmpfs),
		  FIELD_AS(FIELD_PROSE_ARRAY, huge, "huge"), FIELD(bytes_size, "size"),
		  FIELD(bytes_used, "used"), FIELD(bytes_available, "available"));
	fields_of(o, &usage, SAME(linked), SAME(pool), SAME(stranded), SAME(foreign),
		  NUMBER(stores), NUMBER(objects), NUMBER(leases));
	fields_of(o, &info, SAME(inodes_size), SAME(inodes_used), SAME(inodes_free));
	jsonmake_u64(o, "demoted", usage.n_demoted);
	jsonmake_child(o, "tier", tierstate_json(has_tier > 0 ? &tier : NULL));
	json_show(a, o, print_text);
	if (usage.n_unreadable && !a->json)
		message_say("%" PRIu64 " directories could not be looked into: what is in them is "
			    "not counted",
			    usage.n_unreadable);
	return has_tier < 0 ? tierstate_explain(p, has_tier) : ADMIN_OK;
}
