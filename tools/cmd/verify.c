/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_verify.c: "shmstore-admin verify": checks the marker, every store's page, every object's
 * header and table, and the checksums where there are some. Reads nothing but what has a checksum:
 * a partition of objects without checksums is fast. With --tier the tier files instead, each bit of
 * which is under a checksum: at a bounded rate, so that a scrub may run beside the work.
 */
#include <errno.h>
#include <inttypes.h>
#include <shmstore/inspect.h>
#include <time.h>
#include <unistd.h>

#include "human.h"
#include "jsonin.h"
#include "message.h"
#include "opening.h"
#include "options.h"
#include "progress.h"
#include "table.h"
#include "tierstate.h"

struct verify {
	const struct admin *admin;
	bool tier;
	const char *rate_text;
	uint64_t rate; /* bytes a second; 0 = as fast as it goes */
	struct timespec start;
	struct json_object *bad;
	/* n_bad: without those that could not be looked at */
	uint64_t n_checked, n_bad, n_unreadable, bytes;
};

static int add(const struct shmstore_verify_finding *finding, void *arg)
{
	struct verify *v = arg;

	v->n_checked++;
	v->bytes = finding->bytes;
	progress_set(v->n_checked, v->bytes);
	if (!finding->error)
		return 0;
	if (finding->error == -EPERM)
		v->n_unreadable++;
	else
		v->n_bad++;
	const char *reason = finding->reason && *finding->reason
				     ? finding->reason
				     : shmstore_strerror(finding->error);
	struct json_object *o = jsonmake_append(v->bad, jsonmake_new());
	jsonmake_prose(o, "path", finding->path);
	jsonmake_prose(o, "reason", reason);
	jsonmake_i64(o, "error", finding->error);
	return 0;
}

static const struct table_column columns[] = {{"BAD", FIGURE_TEXT, "path"},
					      {"BECAUSE", TABLE_WRAP | TABLE_BAD, "reason"}};

static void print_text(const struct admin *a, const struct json_object *o)
{
	TABLE_LIST(a, columns, o, "bad");
	figure_print(
		o, a->bytes,
		"{checked} files checked, {bytes:size} read[has rate? at {rate:size}/s], {n_bad} "
		"bad[unreadable?, {unreadable} not looked at]\n");
}

static void finish(struct verify *v)
{
	struct json_object *o = jsonmake_new();
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	const double seconds = (double)(now.tv_sec - v->start.tv_sec) +
			       (double)(now.tv_nsec - v->start.tv_nsec) / 1e9;
	jsonmake_u64(o, "checked", v->n_checked);
	jsonmake_u64(o, "bytes", v->bytes);
	jsonmake_real(o, "seconds", seconds);
	jsonmake_child(o, "bad", v->bad);
	if (!v->admin->json) {
		jsonmake_u64(o, "n_bad", v->n_bad);
		jsonmake_u64(o, "unreadable", v->n_unreadable);
		if (v->tier && seconds > 0)
			jsonmake_u64(o, "rate", (uint64_t)((double)v->bytes / seconds));
	}
	json_show(v->admin, o, print_text);
}

static void check(const struct argp_state *state, const struct command_line *line)
{
	struct verify *v = line->own;

	if (v->rate_text && (!human_parse(v->rate_text, 0, &v->rate) || !v->rate))
		options_usage(state, "--rate %s: is no number of bytes a second, such as 100M",
			      v->rate_text);
	if (v->rate && !v->tier)
		options_usage(state, "--rate is for --tier");
}

/* Between two files, too: they may be large, and the rate low. */
static int show(uint64_t bytes, uint64_t bytes_all, void *arg)
{
	const struct verify *v = arg;

	(void)bytes_all;
	progress_set(v->n_checked, bytes);
	return 0;
}

static int verify_tier(struct verify *v, struct shmstore_partition *p)
{
	const struct shmstore_tier_verify what = {
		.size = sizeof(what), .rate = v->rate, .fn = add, .progress = show, .arg = v};

	return shmstore_tier_verify(p, &what);
}

/* Says in a sentence that files are bad, and what to do. Returns ADMIN_FAILED. */
static int explain(const struct verify *v, const char *path)
{
	message_fail(path, "%" PRIu64 " of %" PRIu64 " files are bad", v->n_bad, v->n_checked);
	if (v->tier)
		message_hint("their objects cannot come back: make them anew, and delete them "
			     "through their stores");
	else
		message_hint("a damaged object is of no use to anybody: delete it through its "
			     "store, or remove the file");
	return ADMIN_FAILED;
}

int cmd_verify(struct admin *a, int argc, char **argv)
{
	typedef struct verify OF;
	static const struct options_row options[] = {
		{"tier", 0, NULL, "the tier files on the disk instead of what is in memory",
		 OPTIONS_FLAG, offsetof(OF, tier)},
		{"rate", 0, "SIZE",
		 "with --tier: read no more than that a second (default: no limit)", OPTIONS_TEXT,
		 offsetof(OF, rate_text)},
		{NULL},
	};
	struct verify v = {.admin = a};
	int status = ADMIN_OK;

	OPTIONS_PARSE(
		a, argc, argv, "verify",
		"Checks the marker, every store's page, and every object: header, table, and "
		"checksum where it has one; or all of the disk tier.\v"
		"Exit status 1 if anything is bad, or could not be looked at. Nothing is changed.",
		.options = options, .own = &v, .check = check);
	_partition_ struct shmstore_partition *p = opening_partition(a);
	v.bad = jsonmake_new_list();
	clock_gettime(CLOCK_MONOTONIC, &v.start);
	progress_begin("verify");
	int r = v.tier ? verify_tier(&v, p) : shmstore_partition_verify(p, add, &v);
	progress_end();
	if (r < 0 && v.tier)
		status = tierstate_explain(p, r);
	else if (r < 0)
		status = message_detail(shmstore_partition_path(p), r);
	else
		finish(&v);
	if (v.n_bad)
		status = explain(&v, shmstore_partition_path(p));
	if (v.n_unreadable)
		status = message_fail(shmstore_partition_path(p),
				      "user %u cannot look at %" PRIu64 " files and directories%s",
				      (unsigned)geteuid(), v.n_unreadable, message_refused(-EPERM));
	return status;
}
