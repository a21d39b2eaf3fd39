/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_tier.c: "shmstore-admin tier": the partition's disk tier: what lies where and what it takes;
 * with --set and the limits, gives the partition one or changes it; with --unset, takes it away.
 * Other settings stay as they are.
 */
#include <errno.h>
#include <shmstore/inspect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "human.h"
#include "jsonin.h"
#include "jsonout.h"
#include "message.h"
#include "opening.h"
#include "options.h"
#include "progress.h"
#include "storelist.h"
#include "table.h"
#include "tierstate.h"

/* The command's options: NULL and -1 are "leave it as it is". */
struct tier {
	const struct admin *admin;
	const char *path, *max, *min_free;
	int level, fsync, high, low;
	bool unset, change;
};

static void check(const struct argp_state *state, const struct command_line *line)
{
	struct tier *t = line->own;

	t->change = t->path || t->max || t->min_free || t->level >= 0 || t->fsync >= 0 ||
		    t->high >= 0 || t->low >= 0;
	if (t->unset && t->change)
		options_usage(state, "--unset does not go with --set and limits");
	if (t->high >= 0 && t->low >= 0 && t->low >= t->high)
		options_usage(state, "--low %d: must be below --high %d", t->low, t->high);
}

/* ---- changing ---- */

static int explain_set(const char *partition, const struct shmstore_tier_config *c, int error)
{
	const char *path = c ? c->path : partition;

	switch (-error) {
	case EBUSY:
		message_detail(partition, error);
		message_command(partition, "the tier holds objects; to bring those of a store back",
				"promote STORE --all");
		message_command(partition, "to see which stores have some", "du");
		break;
	case ENOENT:
		message_fail(path, "there is no such directory");
		message_hint("to make it: mkdir -p -m 0700 %s", shellword(path));
		break;
	default:
		message_detail(path, error);
	}
	return ADMIN_FAILED;
}

/* The new configuration: the old one, or the defaults, with what was asked for. path: room for an
 * absolute one. False: said. */
static bool make_config(const struct tier *t, const struct shmstore_tier_info *old,
			char path[PATH_MAX], struct shmstore_tier_config *ret)
{
	struct shmstore_tier_config c = SHMSTORE_TIER_CONFIG_INIT;
	struct statvfs fs;

	if (old)
		c = old->config;
	c.size = sizeof(c);
	if (t->path) {
		if (!realpath(t->path, path)) {
			message_fail(t->path, "%s", strerror(errno));
			if (errno == ENOENT)
				message_hint("to make it: mkdir -p -m 0700 %s", shellword(t->path));
			return false;
		}
		c.path = path;
	}
	uint64_t disk =
		c.path && statvfs(c.path, &fs) == 0 ? (uint64_t)fs.f_blocks * fs.f_frsize : 0;
	if (t->max)
		human_parse(t->max, disk, &c.max);
	if (t->min_free)
		human_parse(t->min_free, disk, &c.min_free);
	if (t->level >= 0)
		c.level = t->level;
	if (t->fsync >= 0)
		c.fsync = t->fsync != 0;
	if (t->high >= 0)
		c.high = (unsigned)t->high;
	if (t->low >= 0)
		c.low = (unsigned)t->low;
	if (c.low >= c.high) {
		message_fail("the watermarks",
			     "the low one (%u %%) must be below the high one (%u %%)", c.low,
			     c.high);
		return false;
	}
	*ret = c;
	return true;
}

static int change(const struct tier *t, struct shmstore_partition *p)
{
	static struct shmstore_tier_info old;
	struct shmstore_tier_config c;
	char path[PATH_MAX];
	const char *partition = shmstore_partition_path(p);
	int r = tierstate_read(p, &old);

	if (r <= 0 && !t->path)
		return tierstate_explain(p, r < 0 ? r : -ENOENT);
	if (!make_config(t, r > 0 ? &old : NULL, path, &c))
		return ADMIN_FAILED;
	r = shmstore_tier_set(p, &c);
	if (r < 0)
		return explain_set(partition, &c, r);
	storelist_join_tier(p);
	return ADMIN_OK;
}

/* ---- showing ---- */

static void print_settings(const struct admin *a, const struct json_object *t)
{
	figure_print(t, a->bytes,
		     "tier files   {files}\n"
		     "disk         {disk_free:size} of {disk_size:size} free\n"
		     "[min_free?             {min_free:size} of that stay free\n]"
		     "limit        [max?{max:size}|none but the disk]\n"
		     "room for     {available:size} more\n"
		     "compression  [level?zstd, level {level}, where it pays|none]\n"
		     "i/o          {io}\n"
		     "fsync        [fsync?before an object leaves memory|no: left to the kernel]\n"
		     "evicts       above {high} % of the partition, down to {low} %\n");
}

static void print_places(const struct admin *a, const struct json_object *t)
{
	static const struct table_column columns[] = {{"WHERE"},
						      {"FILES", TABLE_RIGHT},
						      {"ON DISK", TABLE_RIGHT},
						      {"OBJECTS", TABLE_RIGHT},
						      {"RATIO", TABLE_RIGHT}};
	static const char *const places[][3] = {{"in the tier only", "n_demoted", "demoted"},
						{"in memory too", "n_clean", "clean"},
						{"garbage", "n_orphans", "orphans"},
						{"all", "", "used"}};
	struct table table;
	uint64_t n, n_all = 0;

	table_init(&table, a, columns, 5);
	for (size_t i = 0; i < 4; i++, n_all += n) {
		n = i < 3 ? jsonin_u64(t, places[i][1]) : n_all;
		table_row(&table);
		table_text(&table, 0, places[i][0]);
		table_count(&table, 1, n);
		table_size(&table, 2, jsonin_u64(t, places[i][2]));
		if (i == 0)
			table_size(&table, 3, jsonin_u64(t, "original"));
		if (i == 0 && jsonin_has(t, "ratio"))
			table_printf(&table, 4, "%.2f",
				     (double)jsonin_u64(t, "original") /
					     (double)jsonin_u64(t, "demoted"));
		if (i == 2 && n)
			table_color(&table, 0, "yellow");
	}
	table_row_color(&table, "bold");
	table_finish(&table);
	figure_print(t, a->bytes,
		     "{n_zstd} compressed, {n_raw} as they are; {last_minute:size} written in the "
		     "last minute, {written_per_s:size}/s\n");
}

static void print_text(const struct admin *a, const struct json_object *o)
{
	if (!jsonin_has(o, "tier")) {
		puts("no disk tier: a full partition is an error (ENOSPC)");
		return;
	}
	print_settings(a, jsonin_object(o, "tier"));
	putchar('\n');
	print_places(a, jsonin_object(o, "tier"));
}

static int show(const struct tier *t, struct shmstore_partition *p)
{
	static struct shmstore_tier_info info;
	const char *partition = shmstore_partition_path(p);

	progress_begin("tier");
	int r = tierstate_read(p, &info);
	progress_end();
	if (r < 0)
		return tierstate_explain(p, r);
	struct json_object *o = jsonmake_new();
	jsonmake_prose(o, "partition", partition);
	jsonmake_child(o, "tier", tierstate_json(r ? &info : NULL));
	json_show(t->admin, o, print_text);
	if (!r && !t->unset && !t->admin->json)
		printf("to give it one: " ADMIN_NAME " -p %s tier --set DIRECTORY\n",
		       shellword(partition));
	return ADMIN_OK;
}

int cmd_tier(struct admin *a, int argc, char **argv)
{
	typedef struct tier OF;
	static const struct options_row options[] = {
		{"set", 0, "DIRECTORY",
		 "where tier files go: on a disk; a new tier, or a change of one", OPTIONS_TEXT,
		 offsetof(OF, path)},
		{"max", 0, "SIZE", "of tier files at most; 0: no limit but the disk (default)",
		 OPTIONS_SIZE, offsetof(OF, max)},
		{"min-free", 0, "SIZE", "that stays free on the disk (default: 0)", OPTIONS_SIZE,
		 offsetof(OF, min_free)},
		{"level", 0, "N", "of zstd: 1 (default) to 19; 0: nothing is compressed",
		 OPTIONS_SMALL, offsetof(OF, level), 19},
		{"fsync", 0, NULL, "objects leave memory only when they are on the disk",
		 OPTIONS_VALUE, offsetof(OF, fsync), 1},
		{"no-fsync", 0, NULL, "as soon as the kernel has them (default)", OPTIONS_VALUE,
		 offsetof(OF, fsync), 0},
		{"high", 0, "PERCENT", "of the partition: evictions begin above (default: 85)",
		 OPTIONS_SMALL, offsetof(OF, high), 100},
		{"low", 0, "PERCENT", "of the partition: and end here (default: 75)", OPTIONS_SMALL,
		 offsetof(OF, low), 100},
		{"unset", 0, NULL, "take the tier away; refused while objects are in it",
		 OPTIONS_FLAG, offsetof(OF, unset)},
		{NULL},
	};
	struct tier t = {.admin = a, .level = -1, .fsync = -1, .high = -1, .low = -1};
	int status = ADMIN_OK;

	OPTIONS_PARSE(a, argc, argv, "tier",
		      "Shows the partition's disk tier: what is there, what it takes on disk and "
		      "would take in memory; or gives the partition one.\v"
		      "What is not named stays as it is. Sizes may be a part of the disk (20%). "
		      "Stores that are open notice a change within a second.",
		      .options = options, .own = &t, .check = check);
	_partition_ struct shmstore_partition *p = opening_partition(a);
	if (t.unset) {
		int r = shmstore_tier_set(p, NULL);
		status = r < 0 ? explain_set(shmstore_partition_path(p), NULL, r) : ADMIN_OK;
	} else if (t.change) {
		status = change(&t, p);
	}
	if (status == ADMIN_OK)
		status = show(&t, p);
	return status;
}
