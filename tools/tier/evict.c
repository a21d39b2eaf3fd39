/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_evict.c: "shmstore-admin evict": moves what is used least to the disk tier until the goal is
 * met. Everything is the library's: this command states the goal, shows how far it is, and says
 * what came of it. A signal ends it between two objects, and what was moved stays moved.
 */
#include <errno.h>
#include <limits.h>
#include <shmstore/inspect.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fields.h"
#include "figure.h"
#include "human.h"
#include "jsonout.h"
#include "message.h"
#include "opening.h"
#include "options.h"
#include "progress.h"
#include "storelist.h"
#include "tierstate.h"

struct evict {
	const struct admin *admin;
	/* sizes as typed, NULL = not asked for: they may be of a partition that is not open yet */
	const char *to, *free;
	struct shmstore_evict what;
	struct shmstore_evict_report report;
	uint64_t size, used_before, used; /* of the partition */
	char why[512];                    /* it failed */
};

static void check(const struct argp_state *state, const struct command_line *line)
{
	const struct evict *e = line->own;

	if (!e->to + !e->free + !e->what.watermarks != 2)
		options_usage(state, "one of --to, --free and --watermarks says how far");
}

static int show(const struct shmstore_evict_report *report, void *arg)
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

static void print_text(const struct admin *a, const struct json_object *o)
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
	e->what.progress = show;
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
	json_show(e->admin, make_document(e, r), print_text);
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
		.options = options, .own = &e, .check = check);
	_partition_ struct shmstore_partition *p = opening_partition(a);
	int status = run(&e, p);
	interrupt_finish();
	return status;
}
