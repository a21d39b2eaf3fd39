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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "admin.h"
#include "fields.h"
#include "jsonin.h"
#include "opening.h"
#include "options.h"
#include "table.h"
#include "usage.def"

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
	const struct shmstore_tier_verify what = {
		.size = sizeof(what), .rate = v.rate, .fn = add, .progress = show, .arg = &v};
	v.bad = jsonmake_new_list();
	clock_gettime(CLOCK_MONOTONIC, &v.start);
	progress_begin("verify");
	int r = v.tier ? shmstore_tier_verify(p, &what) : shmstore_partition_verify(p, add, &v);
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

/* ---- reconcile ------------------------------------------------------------------------------- */

/*
 * The df equation with its witnesses. The library reports one holder (a process and an inode
 * without a name) at a time; they are grouped here twice: by process, for "who holds how much", and
 * by inode, for "who holds this ghost". Not clean is a residual other than 0.
 */

/* One process that holds one inode. */
static int add_holder(const struct shmstore_holder *h, void *arg)
{
	struct json_object *o = jsonmake_append(arg, jsonmake_new());

	fields_of(o, h, PLACE("kind"), SAME(pid), SAME(uid), PROSE(command), SAME(inode),
		  SAME(generation), SAME(bytes), SAME(mapped), FIELD(n_fds, "fds"), PROSE(path));
	jsonmake_prose(o, "kind", h->kind == SHMSTORE_HOLD_INFLIGHT ? "inflight" : "ghost");
	jsonmake_key(o, "key", h->key, h->key_size);
	return 0;
}

/* The sums of each process. For people those of ghosts and of files that are being written are
 * there too. */
static void add_processes(const struct admin *a, const struct json_object *found,
			  struct json_object *list)
{
	static const char *const order[] = {"pid", "inode", NULL}, *const own[] = {"pid", "uid",
										   "command", NULL};
	size_t n;
	const struct json_object **holders = jsonin_sorted(found, "holders", order, &n);

	for (size_t i = 0; i < n;) {
		const struct json_object *first = holders[i];
		struct json_object *o = jsonmake_append(list, jsonmake_new());
		uint64_t bytes = 0, mapped = 0, ghosts = 0, n_objects = 0;

		for (; i < n && jsonin_i64(holders[i], "pid") == jsonin_i64(first, "pid");
		     i++, n_objects++) {
			bytes += jsonin_u64(holders[i], "bytes");
			mapped += jsonin_u64(holders[i], "mapped");
			ghosts += strcmp(jsonin_text(holders[i], "kind"), "ghost") == 0
					  ? jsonin_u64(holders[i], "bytes")
					  : 0;
		}
		jsonin_copy(o, first, own);
		jsonmake_u64(o, "bytes", bytes);
		jsonmake_u64(o, "objects", n_objects);
		jsonmake_u64(o, "mapped", mapped);
		if (a->json)
			continue;
		jsonmake_u64(o, "ghosts", ghosts);
		jsonmake_u64(o, "inflight", bytes - ghosts);
	}
	free(holders);
}

/* Each inode, or packed object of one, with those who hold it; the largest first. */
static void add_inodes(const struct json_object *found, struct json_object *list)
{
	static const char *const order[] = {"-bytes", "inode", "generation", "pid", NULL},
				 *const own[] = {"kind", "inode", "bytes", "key", "path", NULL},
				 *const of_holder[] = {"pid", "command", "mapped", "fds", NULL};
	size_t n;
	const struct json_object **holders = jsonin_sorted(found, "holders", order, &n);

	for (size_t i = 0; i < n;) {
		const struct json_object *first = holders[i];
		struct json_object *o = jsonmake_append(list, jsonmake_new()), *who;

		jsonin_copy(o, first, own);
		who = jsonmake_child(o, "holders", jsonmake_new_list());
		for (; i < n && jsonin_u64(holders[i], "inode") == jsonin_u64(first, "inode") &&
		       jsonin_u64(holders[i], "generation") == jsonin_u64(first, "generation");
		     i++)
			jsonin_copy(jsonmake_append(who, jsonmake_new()), holders[i], of_holder);
	}
	free(holders);
}

static void begin_terms(struct table *t, const struct admin *a)
{
	static const struct table_column term_columns[] = {
		{""}, {"TERM"}, {"BYTES", TABLE_RIGHT}, {"WHAT IT IS", TABLE_TRUNC}};

	table_init(t, a, term_columns, 4);
	table_no_headings(t);
}

static void print_term(struct table *t, const char *sign, const struct json_object *o,
		       const char *member, const char *name, const char *meaning)
{
	table_row(t);
	table_text(t, 0, sign);
	table_text(t, 1, name);
	table_figure(t, 2, jsonin_at_path(o, member), FIGURE_SIZE);
	table_text(t, 3, meaning);
}

static void print_equation(const struct admin *a, const struct json_object *o)
{
	int64_t residual = jsonin_i64(o, "residual");
	struct table t;

	begin_terms(&t, a);
	print_term(&t, "", o, "used", "used", "what the file system says");
	print_term(&t, "=", o, "linked", "linked",
		   "named objects, each inode once, and the stores' own pages");
	print_term(&t, "+", o, "ghosts", "ghosts",
		   "deleted, but a process still maps or opens them");
	print_term(&t, "+", o, "pool", "pool", "recycled files, kept for the next put");
	if (jsonin_u64(o, "stranded"))
		print_term(&t, "", o, "stranded", "",
			   "of it in pages that packed objects have the rest of");
	print_term(&t, "+", o, "inflight", "inflight", "being written, not yet published");
	print_term(&t, "+", o, "foreign", "foreign",
		   "files on this file system that are not shmstore's");
	print_term(&t, "+", o, "residual", "residual",
		   residual ? "not accounted for" : "every byte is accounted for");
	table_printf(
		&t, 2, "%s%s", residual < 0 ? "-" : "",
		human_bytes(residual < 0 ? (uint64_t)-residual : (uint64_t)residual, a->bytes));
	table_color(&t, 2, residual ? "red" : "green");
	table_finish(&t);
}

/* The disk's own equation. */
static void print_tier(const struct admin *a, const struct json_object *o)
{
	const bool orphans = jsonin_u64(o, "tier_orphans") != 0;
	struct table t;

	putchar('\n');
	begin_terms(&t, a);
	print_term(&t, "", o, "tier", "tier", "tier files, on disk");
	print_term(&t, "=", o, "tier_demoted", "demoted", "of objects that are there only");
	print_term(&t, "+", o, "tier_clean", "clean", "of objects that are in memory as well");
	print_term(&t, "+", o, "tier_orphans", "orphans",
		   orphans ? "left by killed processes: gc removes them" : "of nobody");
	if (orphans)
		table_color(&t, 2, "yellow");
	table_finish(&t);
}

static const struct table_column processes[] = {
	{"PID", FIGURE_COUNT, "pid"},         {"USER", FIGURE_COUNT, "uid"},
	{"COMMAND", FIGURE_TEXT, "command"},  {"HOLDS", FIGURE_SIZE, "bytes"},
	{"OBJECTS", FIGURE_COUNT, "objects"}, {"GHOSTS", FIGURE_SIZE, "ghosts"},
	{"INFLIGHT", FIGURE_SIZE, "inflight"}};

/* A row for each holder; what it holds stands in the first of several. */
static void print_inodes(const struct admin *a, const struct json_object *o)
{
	static const struct table_column term_columns[] = {
		{"WHAT"},
		{"BYTES", TABLE_RIGHT},
		{"INODE", TABLE_RIGHT},
		{"PID", FIGURE_COUNT, "pid"},
		{"COMMAND", FIGURE_TEXT, "command"},
		{"MAPPED", FIGURE_SIZE, "mapped"},
		{"FDS", FIGURE_COUNT, "fds"},
		{"KEY"},
	};
	struct table t;

	table_init(&t, a, term_columns, 8);
	for (size_t i = 0; i < jsonin_count(o, "ghost_list"); i++) {
		const struct json_object *g = jsonin_at(o, "ghost_list", i);

		for (size_t k = 0; k < jsonin_count(g, "holders"); k++) {
			table_object(&t, jsonin_at(g, "holders", k));
			if (jsonin_has(g, "key"))
				/* escaped already */
				table_printf(&t, 7, "%s", jsonin_text(g, "key"));
			else
				table_text(&t, 7, jsonin_text(g, "path"));
			if (k)
				continue;
			table_text(&t, 0, jsonin_text(g, "kind"));
			table_size(&t, 1, jsonin_u64(g, "bytes"));
			table_count(&t, 2, jsonin_u64(g, "inode"));
		}
	}
	table_finish(&t);
}

static void print_books(const struct admin *a, const struct json_object *o)
{
	print_equation(a, o);
	if (jsonin_u64(o, "tier") || jsonin_u64(o, "demoted"))
		print_tier(a, o);
	if (jsonin_count(o, "holders")) {
		putchar('\n');
		TABLE_LIST(a, processes, o, "holders");
		putchar('\n');
		print_inodes(a, o);
	}
	fflush(stdout);
}

static int conclude(const struct shmstore_usage *u, const char *path)
{
	if (u->residual == 0)
		return ADMIN_OK;
	message_fail(path, "%" PRId64 " bytes are not accounted for", u->residual);
	if (u->n_unreadable)
		message_hint("%" PRIu64 " processes or directories could not be looked into; as "
			     "root: sudo " ADMIN_NAME " -p %s reconcile",
			     u->n_unreadable, shellword(path));
	else
		message_hint("if processes are writing now, try again when they are quiet");
	return ADMIN_FAILED;
}

int cmd_reconcile(struct admin *a, int argc, char **argv)
{
	struct json_object *holders, *o;
	struct shmstore_usage usage;

	OPTIONS_PARSE(a, argc, argv, "reconcile",
		      "Accounts for every byte of the file system and names the processes that "
		      "hold memory of deleted objects.\v"
		      "Exit status 1 if the residual is not 0.");
	_partition_ struct shmstore_partition *p = opening_partition(a);
	_json_ struct json_object *found = jsonmake_new();
	holders = jsonmake_child(found, "holders", jsonmake_new_list());
	progress_begin("reconcile");
	int r = shmstore_partition_reconcile(p, add_holder, holders, &usage);
	progress_end();
	if (r < 0)
		return message_detail(shmstore_partition_path(p), r);
	o = jsonmake_new();
	jsonmake_prose(o, "partition", shmstore_partition_path(p));
	fields_add(o, of_usage, &usage);
	add_processes(a, found, jsonmake_child(o, "holders", jsonmake_new_list()));
	add_inodes(found, jsonmake_child(o, "ghost_list", jsonmake_new_list()));
	json_show(a, o, print_books);
	return conclude(&usage, shmstore_partition_path(p));
}
