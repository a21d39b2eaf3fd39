/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_tier.c: "shmstore-admin tier": the partition's disk tier: what lies where and what it takes; with --set and the limits, gives the
 * partition one or changes it; with --unset, takes it away. Other settings stay as they are.
 */
#include <errno.h>
#include <inttypes.h>
#include <shmstore/inspect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "human.h"
#include "jsonout.h"
#include "keytext.h"
#include "message.h"
#include "opening.h"
#include "options.h"
#include "progress.h"
#include "shellword.h"
#include "storelist.h"
#include "table.h"
#include "tierfigures.h"
#include "tierstate.h"

enum {
	OPTION_SET = 0x100,
	OPTION_UNSET,
	OPTION_MAX,
	OPTION_MIN_FREE,
	OPTION_LEVEL,
	OPTION_FSYNC,
	OPTION_NO_FSYNC,
	OPTION_HIGH,
	OPTION_LOW,
};

/* The command's options: NULL and -1 are "leave it as it is". */
struct tier {
	const struct admin *admin;
	const char *path, *max, *min_free;
	int level, fsync, high, low;
	bool unset, change;
};

static int parse_small(const struct argp_state *state, const char *option, const char *arg, uint64_t most)
{
	uint64_t value = options_number(state, option, arg, 0);

	if (value > most)
		options_usage(state, "%s %s: is more than %" PRIu64, option, arg, most);
	return (int)value;
}

static const char *parse_size(const struct argp_state *state, const char *option, const char *arg)
{
	uint64_t bytes;

	if (!human_parse(arg, (uint64_t)1 << 40, &bytes))
		options_usage(state, "%s %s: is no size, such as 64G or 20%%", option, arg);
	return arg;
}

static void check_line(const struct argp_state *state, const struct tier *t)
{
	if (t->unset && t->change)
		options_usage(state, "--unset does not go with --set and limits");
	if (t->high >= 0 && t->low >= 0 && t->low >= t->high)
		options_usage(state, "--low %d: must be below --high %d", t->low, t->high);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct command_line *line = state->input;
	struct tier *t = line->own;

	if (key >= OPTION_SET && key <= OPTION_LOW && key != OPTION_UNSET)
		t->change = true;
	switch (key) {
	case OPTION_SET:
		t->path = arg;
		return 0;
	case OPTION_UNSET:
		t->unset = true;
		return 0;
	case OPTION_MAX:
		t->max = parse_size(state, "--max", arg);
		return 0;
	case OPTION_MIN_FREE:
		t->min_free = parse_size(state, "--min-free", arg);
		return 0;
	case OPTION_LEVEL:
		t->level = parse_small(state, "--level", arg, 19);
		return 0;
	case OPTION_FSYNC:
	case OPTION_NO_FSYNC:
		t->fsync = key == OPTION_FSYNC;
		return 0;
	case OPTION_HIGH:
		t->high = parse_small(state, "--high", arg, 100);
		return 0;
	case OPTION_LOW:
		t->low = parse_small(state, "--low", arg, 100);
		return 0;
	case ARGP_KEY_END:
		check_line(state, t);
		return options_common(key, arg, state);
	default:
		return options_common(key, arg, state);
	}
}

/* ---- changing ---- */

static int explain_set(const char *partition, const struct shmstore_tier_config *c, int error)
{
	const char *path = c ? c->path : partition;

	switch (-error) {
	case EBUSY:
		message_detail(partition, error);
		message_hint("the tier holds objects; to bring those of a store back: " ADMIN_NAME
			     " -p %s promote STORE --all",
			     shellword(partition));
		message_hint("to see which stores have some: " ADMIN_NAME " -p %s du", shellword(partition));
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

/* The new configuration: the old one, or the defaults, with what was asked for. path: room for an absolute one. False: said. */
static bool make_config(const struct tier *t, const struct shmstore_tier_info *old, char path[PATH_MAX],
			struct shmstore_tier_config *ret)
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
	uint64_t disk = c.path && statvfs(c.path, &fs) == 0 ? (uint64_t)fs.f_blocks * fs.f_frsize : 0;
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
		message_fail("the watermarks", "the low one (%u %%) must be below the high one (%u %%)", c.low, c.high);
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

static void print_line(const char *name, const char *text)
{
	printf("%-13s", name);
	keytext_print(text);
	putchar('\n');
}

static void print_settings(const struct tier *t, const struct shmstore_tier_info *info)
{
	const struct shmstore_tier_config *c = &info->config;
	const bool exact = t->admin->bytes;
	char text[256], a[HUMAN_SIZE], b[HUMAN_SIZE];

	print_line("tier files", info->path);
	snprintf(text, sizeof(text), "%s of %s free", human_bytes(info->disk_free, exact, a),
		 human_bytes(info->disk_size, exact, b));
	print_line("disk", text);
	if (c->min_free) {
		snprintf(text, sizeof(text), "%s of that stay free", human_bytes(c->min_free, exact, a));
		print_line("", text);
	}
	if (c->max)
		print_line("limit", human_bytes(c->max, exact, a));
	else
		print_line("limit", "none but the disk");
	snprintf(text, sizeof(text), "%s more", human_bytes(tierfigures_available(info), exact, a));
	print_line("room for", text);
	if (c->level)
		snprintf(text, sizeof(text), "zstd, level %d, where it pays", c->level);
	else
		snprintf(text, sizeof(text), "none");
	print_line("compression", text);
	print_line("i/o", shmstore_tier_io());
	print_line("fsync", c->fsync ? "before an object leaves memory" : "no: left to the kernel");
	snprintf(text, sizeof(text), "above %u %% of the partition, down to %u %%", c->high, c->low);
	print_line("evicts", text);
}

static void print_place(struct table *table, const char *where, uint64_t n, uint64_t bytes)
{
	table_row(table);
	table_text(table, 0, where);
	table_count(table, 1, n);
	table_size(table, 2, bytes);
}

static void print_places(const struct tier *t, const struct shmstore_tier_info *info)
{
	static const struct table_column columns[] = {{"WHERE", 0},
						      {"FILES", TABLE_RIGHT},
						      {"ON DISK", TABLE_RIGHT},
						      {"OBJECTS", TABLE_RIGHT},
						      {"RATIO", TABLE_RIGHT}};
	char written[HUMAN_SIZE], rate[HUMAN_SIZE];
	struct table table;

	table_init(&table, t->admin, columns, 5);
	print_place(&table, "in the tier only", info->n_demoted, info->demoted);
	table_size(&table, 3, info->original);
	if (info->demoted)
		table_printf(&table, 4, "%.2f", tierfigures_ratio(info));
	print_place(&table, "in memory too", info->n_clean, info->clean);
	print_place(&table, "garbage", info->n_orphans, info->orphans);
	if (info->n_orphans)
		table_color(&table, 0, "yellow");
	print_place(&table, "all", info->n_demoted + info->n_clean + info->n_orphans, info->used);
	for (size_t i = 0; i < 5; i++)
		table_color(&table, i, "bold");
	table_finish(&table);
	printf("%" PRIu64 " compressed, %" PRIu64 " as they are; %s written in the last minute, %s/s\n",
	       info->n_codec_zstd, info->n_codec_raw, human_bytes(info->last_minute, t->admin->bytes, written),
	       human_bytes(info->last_minute / 60, t->admin->bytes, rate));
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
	if (t->admin->json) {
		struct json_object *o = jsonmake_new();
		jsonmake_prose(o, "partition", partition);
		jsonmake_child(o, "tier", tierstate_json(r ? &info : NULL));
		json_print(o);
	} else if (!r) {
		puts("no disk tier: a full partition is an error (ENOSPC)");
		if (!t->unset)
			printf("to give it one: " ADMIN_NAME " -p %s tier --set DIRECTORY\n", shellword(partition));
	} else {
		print_settings(t, &info);
		putchar('\n');
		print_places(t, &info);
	}
	return ADMIN_OK;
}

int cmd_tier(struct admin *a, int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"set", OPTION_SET, "DIRECTORY", 0, "where tier files go: on a disk; a new tier, or a change of one",
		 1},
		{"max", OPTION_MAX, "SIZE", 0, "of tier files at most; 0: no limit but the disk (default)", 1},
		{"min-free", OPTION_MIN_FREE, "SIZE", 0, "that stays free on the disk (default: 0)", 1},
		{"level", OPTION_LEVEL, "N", 0, "of zstd: 1 (default) to 19; 0: nothing is compressed", 1},
		{"fsync", OPTION_FSYNC, NULL, 0, "objects leave memory only when they are on the disk", 1},
		{"no-fsync", OPTION_NO_FSYNC, NULL, 0, "as soon as the kernel has them (default)", 1},
		{"high", OPTION_HIGH, "PERCENT", 0, "of the partition: evictions begin above (default: 85)", 1},
		{"low", OPTION_LOW, "PERCENT", 0, "of the partition: and end here (default: 75)", 1},
		{"unset", OPTION_UNSET, NULL, 0, "take the tier away; refused while objects are in it", 2},
		{NULL, 0, NULL, 0, NULL, 0},
	};
	static const struct argp argp = OPTIONS_ARGP(
		options, parse, "tier",
		"Shows the partition's disk tier: what is there, what it takes on disk and would take in memory; or "
		"gives the partition one.\v"
		"What is not named stays as it is. Sizes may be a part of the disk (20%). Stores that are open "
		"notice a change within a second.");
	struct tier t = {.admin = a, .level = -1, .fsync = -1, .high = -1, .low = -1};
	struct command_line line = {.admin = a, .own = &t};
	struct shmstore_partition *p;

	options_parse(&argp, &line, argc, argv);
	int status = opening_partition(a, &p);
	if (status)
		return status;
	if (t.unset) {
		int r = shmstore_tier_set(p, NULL);
		status = r < 0 ? explain_set(shmstore_partition_path(p), NULL, r) : ADMIN_OK;
	} else if (t.change) {
		status = change(&t, p);
	}
	if (status == ADMIN_OK)
		status = show(&t, p);
	shmstore_partition_unref(p);
	return status;
}
