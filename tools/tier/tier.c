/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_tier.c: "shmstore-admin tier": the partition's disk tier: what lies where and what it takes;
 * with --set and the limits, gives the partition one or changes it; with --unset, takes it away.
 * Other settings stay as they are.
 */
#include <errno.h>
#include <limits.h>
#include <shmstore/inspect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "admin.h"
#include "fields.h"
#include "jsonin.h"
#include "opening.h"
#include "options.h"
#include "table.h"

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
	table_row_bold(&table);
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
	figure_print(jsonin_object(o, "tier"), a->bytes,
		     "tier files   {files}\n"
		     "disk         {disk_free:size} of {disk_size:size} free\n"
		     "[min_free?             {min_free:size} of that stay free\n]"
		     "limit        [max?{max:size}|none but the disk]\n"
		     "room for     {available:size} more\n"
		     "compression  [level?zstd, level {level}, where it pays|none]\n"
		     "i/o          {io}\n"
		     "fsync        [fsync?before an object leaves memory|no: left to the kernel]\n"
		     "evicts       above {high} % of the partition, down to {low} %\n");
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

/* ---- evict ----------------------------------------------------------------------------------- */

/*
 * Moves what is used least to the disk tier until the goal is met. Everything is the library's:
 * this command states the goal, shows how far it is, and says what came of it. A signal ends it
 * between two objects, and what was moved stays moved.
 */

struct evict {
	const struct admin *admin;
	/* sizes as typed, NULL = not asked for: they may be of a partition that is not open yet */
	const char *to, *free;
	struct shmstore_evict what;
	struct shmstore_evict_report report;
	uint64_t size, used_before, used; /* of the partition */
	char why[512];                    /* it failed */
};

static void check_goal(const struct argp_state *state, const struct command_line *line)
{
	const struct evict *e = line->own;

	if (!e->to + !e->free + !e->what.watermarks != 2)
		options_usage(state, "one of --to, --free and --watermarks says how far");
}

static int show_step(const struct shmstore_evict_report *report, void *arg)
{
	(void)arg;
	progress_set(report->n_objects, report->freed);
	return interrupt_pending() ? 1 : 0;
}

/* The goal in bytes. False: it makes no sense for this partition; said. */
static bool set_goal(struct evict *e, const struct shmstore_partition_info *info)
{
	const char *text = e->to ? e->to : e->free;

	e->size = info->bytes_size;
	e->used_before = info->bytes_used;
	if (!text)
		return true;
	if (!info->bytes_size && strchr(text, '%')) {
		message_fail(text, "the partition has no limit that this could be a part of");
		return false;
	}
	human_parse(text, info->bytes_size, e->to ? &e->what.to : &e->what.bytes);
	if (e->to && !e->what.to) /* which would mean: not asked for */
		e->what.to = 1;
	return true;
}

static struct json_object *make_document(const struct evict *e, int r)
{
	const struct shmstore_evict_report *p = &e->report;
	struct json_object *o = jsonmake_new();
	const double seconds = (double)p->duration_ns / 1e9;

	jsonmake_flag(o, "done", r >= 0);
	fields_of(o, p, NUMBER(objects), SAME(freed), SAME(held), SAME(original), SAME(written),
		  NUMBER(clean), NUMBER(skipped));
	jsonmake_real(o, "seconds", seconds);
	jsonmake_real(o, "original_per_s", p->duration_ns ? (double)p->original / seconds : 0);
	jsonmake_real(o, "written_per_s", p->duration_ns ? (double)p->written / seconds : 0);
	jsonmake_null(o, "ratio");
	if (p->written)
		jsonmake_real(o, "ratio", (double)p->original / (double)p->written);
	jsonmake_flag(o, "disk_full", p->disk_full);
	jsonmake_prose(o, "error", r < 0 ? e->why : NULL);
	fields_of(o, e, SAME(size), SAME(used_before), SAME(used));
	return o;
}

static void print_evicted(const struct admin *a, const struct json_object *o)
{
	figure_print(o, a->bytes,
		     "[objects?{objects:object} demoted: {freed:size} freed"
		     "[held?, {held:size} when they are no longer mapped]\n"
		     "[original?{written:size} written for {original:size} of objects"
		     "[original_per_s? in {seconds:tenths}, {original_per_s:sizes}/s of objects]\n]"
		     "[clean?{clean:object} needed no write\n]"
		     "|nothing was moved\n]"
		     "[skipped?{skipped:object} changed meanwhile, and stayed\n]"
		     "the partition: {used:size} [size?of {size:size} ]used\n");
}

/* Part of a larger tmpfs, such as /dev/shm: what is used there is not the partition's alone. */
static bool shares_file_system(const char *path)
{
	char above[PATH_MAX + sizeof("/..")];
	struct stat here, there;

	snprintf(above, sizeof(above), "%s/..", path);
	return stat(path, &here) == 0 && stat(above, &there) == 0 && here.st_dev == there.st_dev;
}

static int explain(const struct evict *e, struct shmstore_partition *p, int error)
{
	const char *path = shmstore_partition_path(p);

	if (error == -ENOENT)
		return tierstate_explain(p, error);
	if (error == -ECANCELED)
		return message_fail(path, "interrupted; what was demoted stays so");
	message_because(path, e->why);
	if (error == -ENOSPC && e->report.disk_full) {
		message_command(path, "to see what fills the tier", "tier");
	} else if (error == -ENOSPC) {
		message_command(path, "to see who holds what", "du");
		if (shares_file_system(path))
			message_hint("its file system holds other files, too: they count as used "
				     "and cannot be moved. --free SIZE asks for what the "
				     "partition's objects can give");
		if (e->report.error)
			message_hint("the last object that failed: %s",
				     shmstore_strerror(e->report.error));
	}
	return ADMIN_FAILED;
}

static int run(struct evict *e, struct shmstore_partition *p)
{
	struct shmstore_partition_info info = {.size = sizeof(info)};
	int status = ADMIN_OK;
	int r = shmstore_partition_info(p, &info);

	if (r < 0)
		return message_detail(shmstore_partition_path(p), r);
	if (!set_goal(e, &info))
		return ADMIN_FAILED;
	storelist_join_tier(p);
	e->what.wait = true;
	e->what.progress = show_step;
	interrupt_catch();
	progress_begin("evict");
	r = shmstore_partition_evict(p, &e->what, &e->report);
	progress_end();
	if (r < 0) {
		snprintf(e->why, sizeof(e->why), "%s",
			 *shmstore_error_detail() ? shmstore_error_detail() : shmstore_strerror(r));
		status = explain(e, p, r);
		if (r != -ENOSPC && r != -ECANCELED) /* nothing was done that could be told of */
			return status;
	}
	if (shmstore_partition_info(p, &info) == 0)
		e->used = info.bytes_used;
	json_show(e->admin, make_document(e, r), print_evicted);
	return status;
}

int cmd_evict(struct admin *a, int argc, char **argv)
{
	typedef struct evict OF;
	static const struct options_row options[] = {
		{"to", 0, "SIZE", "until no more than that is used of the partition: 8G, 50%",
		 OPTIONS_SIZE, offsetof(OF, to)},
		{"free", 0, "SIZE", "until that much is freed", OPTIONS_SIZE, offsetof(OF, free)},
		{"watermarks", 0, NULL,
		 "only above the tier's high watermark, and down to the low one", OPTIONS_FLAG,
		 offsetof(OF, what.watermarks)},
		{"threads", 0, "N",
		 "that read, compress and write (default: as many as processors)", OPTIONS_UNSIGNED,
		 offsetof(OF, what.n_threads)},
		{"background", 0, NULL, "give way to everything else on the host", OPTIONS_FLAG,
		 offsetof(OF, what.background)},
		{"user", 0, "USER", "as root: only that user's objects (default: everybody's)",
		 OPTIONS_USER, offsetof(OF, what.uid)},
		{NULL},
	};
	static struct evict e = {.what = SHMSTORE_EVICT_INIT, .report = {.size = sizeof(e.report)}};
	long n_processors = sysconf(_SC_NPROCESSORS_ONLN);

	e.admin = a;
	e.what.n_threads = n_processors > 1 ? (unsigned)n_processors : 1;
	OPTIONS_PARSE(
		a, argc, argv, "evict --to SIZE | --free SIZE | --watermarks",
		"Moves the objects that are used least to the partition's disk tier, until the "
		"goal is met.\v"
		"Pinned and leased objects stay; what is mapped comes last, and its memory is free "
		"when the last view is gone. One eviction runs at a time for each user: another "
		"one is waited for. Exit status 1 if the goal could not be met.",
		.options = options, .own = &e, .check = check_goal);
	_partition_ struct shmstore_partition *p = opening_partition(a);
	int status = run(&e, p);
	interrupt_finish();
	return status;
}
