/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gc.c: "shmstore-admin gc [--dry-run]": removes what nobody owns, each step with the evidence for
 * it. The library keeps doubtful things, and says so; that is no failure. A step that did not
 * succeed is. --all: the same in each partition that lies at the root of a tmpfs of this host, or
 * one directory below.
 *
 * "shmstore-admin reap STORE": the daemon removes one dead store, and tells each step with its
 * evidence. It is the daemon's word whether the store is dead, by its lock; a user may have his own
 * reaped.
 */
#include <dirent.h>
#include <errno.h>
#include <shmstore/inspect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "admin.h"
#include "asking.h"
#include "cleanup.h"
#include "fields.h"
#include "jsonin.h"
#include "opening.h"
#include "options.h"
#include "sysroot.h"
#include "table.h"

struct gc {
	const struct admin *admin;
	unsigned flags; /* SHMSTORE_GC_* */
	bool all;
	struct json_object *partitions; /* of --all with --json */
	struct json_object *actions;
	uint64_t n_actions, n_kept, n_failed, bytes;
};

static int add(const struct shmstore_gc_action *action, void *arg)
{
	struct gc *gc = arg;
	struct json_object *o = jsonmake_append(gc->actions, jsonmake_new());

	jsonmake_prose(o, "what", shmstore_gc_what_name(action->what));
	fields_of(o, action, PROSE(path), SAME(bytes), SAME(tier_bytes), NUMBER(objects),
		  PROSE(evidence));
	jsonmake_prose(o, "error", action->error ? shmstore_strerror(action->error) : NULL);
	if (action->error) {
		if (action->what == SHMSTORE_GC_KEPT)
			message_fail(action->path, "%s", action->evidence);
		else
			message_error(action->path, action->error);
		gc->n_failed++;
	}
	if (action->what == SHMSTORE_GC_KEPT)
		gc->n_kept++;
	else
		gc->n_actions++;
	gc->bytes += action->bytes;
	progress_set(gc->n_actions, gc->bytes);
	return 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct table_column columns[] = {
	{"WHAT", TABLE_STATE, "what"},          {"FREES", FIGURE_SIZE, "bytes"},
	{"ON DISK", FIGURE_SIZE, "tier_bytes"}, {"OBJECTS", FIGURE_COUNT, "objects"},
	{"PATH", FIGURE_TEXT, "path"},          {"BECAUSE", TABLE_WRAP, "evidence"},
};

/* The steps of a document of gc or reap; tier: with a column of what is freed on the disk tier. */
static void gctable_print(const struct admin *a, const struct json_object *document, bool tier)
{
	struct table t;

	table_init(&t, a, columns, sizeof(columns) / sizeof(columns[0]));
	if (!tier)
		table_hide(&t, "ON DISK");
	for (size_t i = 0; i < jsonin_count(document, "actions"); i++)
		table_object(&t, jsonin_at(document, "actions", i));
	table_finish(&t);
}

/* "freed 1.50 MiB: 1 store, 0 leases, 3 files"; and of the disk tier, where there was something. */
static void gctable_total(const struct admin *a, const struct json_object *document)
{
	figure_print(document, a->bytes,
		     "[dry_run?would free|freed] {freed:size}: {stores:store}, {leases:lease}, "
		     "{objects:file}\n"
		     "[tier_files?[dry_run?would free|freed] {tier_freed:size} on disk: "
		     "{tier_files:tier file}\n]");
}

/* ---- gc -------------------------------------------------------------------------------------- */

static void finish(struct gc *gc, struct shmstore_partition *p,
		   const struct shmstore_gc_report *report)
{
	struct json_object *o = jsonmake_new();
	char tier[PATH_MAX];

	if (gc->all)
		jsonmake_prose(o, "partition", shmstore_partition_path(p));
	jsonmake_flag(o, "dry_run", gc->flags & SHMSTORE_GC_DRY_RUN);
	jsonmake_child(o, "actions", gc->actions);
	fields_of(o, report, SAME(freed), NUMBER(stores), NUMBER(leases), NUMBER(objects),
		  SAME(tier_freed), FIELD(n_tier, "tier_files"));
	jsonmake_u64(o, "failed", gc->n_failed);
	if (!gc->admin->json) {
		gctable_print(gc->admin, o, tierstate_directory(p, tier));
		if (gc->n_actions)
			gctable_total(gc->admin, o);
		else
			puts(gc->n_failed
				     ? "no other garbage was found, and not everything could be "
				       "looked at"
			     : gc->n_kept ? "nothing else: no garbage"
					  : "no garbage");
		jsonin_free(o);
	} else if (gc->all) {
		jsonmake_append(gc->partitions, o);
	} else {
		json_print(o);
	}
}

/* Removes what nobody owns there. Returns the exit status. */
static int collect(struct gc *gc, struct shmstore_partition *p)
{
	struct shmstore_gc_report report;

	gc->n_actions = gc->n_kept = gc->n_failed = gc->bytes = 0;
	gc->actions = jsonmake_new_list();
	progress_begin("gc");
	int r = shmstore_partition_gc_plan(p, gc->flags, add, gc, &report);
	progress_end();
	if (r < 0)
		return message_detail(shmstore_partition_path(p), r);
	finish(gc, p, &report);
	return gc->n_failed ? ADMIN_FAILED : ADMIN_OK;
}

/* The partition at path, if any. A link does not count: anybody may have made it. */
static int collect_at(struct gc *gc, const char *path)
{
	char marker[2 * PATH_MAX + 16];
	_partition_ struct shmstore_partition *p = NULL;
	struct stat st;

	snprintf(marker, sizeof(marker), "%s/.shmstore", path);
	if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode) || lstat(marker, &st) < 0 ||
	    !S_ISREG(st.st_mode))
		return ADMIN_OK;
	int r = shmstore_partition_open(path, 0, &p);
	if (r < 0)
		return opening_explain(gc->admin, path, r);
	if (!gc->admin->json)
		printf("%s:\n", path);
	return collect(gc, p);
}

static int collect_below(struct gc *gc, const char *point)
{
	int status = collect_at(gc, point);
	_dir_ DIR *dir =
		opendir(point); /* what cannot be read by us has nothing that we may remove */
	const struct dirent *e;

	while (dir && (e = readdir(dir))) {
		char path[2 * PATH_MAX];

		snprintf(path, sizeof(path), "%s/%s", point, e->d_name);
		if (e->d_name[0] != '.' && collect_at(gc, path) != ADMIN_OK)
			status = ADMIN_FAILED;
	}
	return status;
}

static int collect_all(struct gc *gc)
{
	_mounts_ struct mountinfo_table mounts = {0};
	int status = ADMIN_OK;

	mountinfo_read(gc->admin, &mounts);
	if (gc->admin->json)
		gc->partitions = jsonmake_new_list();
	for (size_t i = 0; i < mounts.n_mounts; i++) {
		const struct shms_mountline *m = &mounts.mounts[i];

		/* The visible one of several at a place. */
		if (strcmp(m->type, "tmpfs") == 0 && mountinfo_find(&mounts, m->point) == m &&
		    collect_below(gc, m->point) != ADMIN_OK)
			status = ADMIN_FAILED;
	}
	if (gc->admin->json) {
		struct json_object *o = jsonmake_new();
		jsonmake_child(o, "partitions", gc->partitions);
		json_print(o);
	}
	return status;
}

int cmd_gc(struct admin *a, int argc, char **argv)
{
	typedef struct gc OF;
	static const struct options_row options[] = {
		{"dry-run", 'n', NULL, "only say what would go, and why", OPTIONS_BITS,
		 offsetof(OF, flags), SHMSTORE_GC_DRY_RUN},
		{"leases", 0, NULL,
		 "leases of dead stores too, before they end: their tickets are stale then",
		 OPTIONS_BITS, offsetof(OF, flags), SHMSTORE_GC_LEASES},
		{"all", 0, NULL, "all partitions on this host's tmpfs mounts, in place of one",
		 OPTIONS_FLAG, offsetof(OF, all)},
		{NULL},
	};
	struct gc gc = {.admin = a};

	OPTIONS_PARSE(a, argc, argv, "gc",
		      "Removes what dead processes left: their stores (unless they are kept ones), "
		      "expired leases, half-made files, addresses of stores that are gone, and "
		      "tier files that no name leads to. Live processes are not disturbed; what is "
		      "unsure stays.",
		      .options = options, .own = &gc);
	if (gc.all)
		return collect_all(&gc);
	_partition_ struct shmstore_partition *p = opening_partition(a);
	return collect(&gc, p);
}

/* ---- reap ------------------------------------------------------------------------------------ */

/* The path of the store called name, of those that the daemon knows. False: none, or several; said.
 */
static bool find_known(const struct json_object *document, const char *name,
		       char ret_path[PATH_MAX])
{
	size_t found = 0;

	for (size_t i = 0; i < jsonin_count(document, "partitions"); i++) {
		const struct json_object *p = jsonin_at(document, "partitions", i);
		for (size_t w = 0; w < jsonin_count(p, "workers"); w++) {
			const struct json_object *worker = jsonin_at(p, "workers", w);
			if (strcmp(jsonin_text(worker, "name"), name) != 0)
				continue;
			snprintf(ret_path, PATH_MAX, "%s", jsonin_text(worker, "path"));
			found++;
		}
	}
	if (found > 1) {
		message_fail(name, "several partitions have a store of that name");
		message_hint("say which: with -p, or by its path");
	}
	return found == 1;
}

/* The path of what the user called a store. Ends the program where there is none. */
static void find_path(const struct admin *a, const char *store, char ret_path[PATH_MAX])
{
	char partition[PATH_MAX];

	if (store[0] == '/') {
		snprintf(ret_path, PATH_MAX, "%s", store);
		return;
	}
	/* Also one that the daemon does not know of: where it would be. */
	opening_path(a, partition);
	if ((size_t)snprintf(ret_path, PATH_MAX, "%s/stores/%s", partition, store) < PATH_MAX &&
	    access(ret_path, F_OK) == 0) {
		char real[PATH_MAX];
		if (realpath(ret_path, real))
			snprintf(ret_path, PATH_MAX, "%s", real);
		return;
	}
	_json_ struct json_object *document = asking_query(a, SHMSTORE_QUERY_WORKERS);
	if (find_known(document, store, ret_path))
		return;
	message_fail(store, "there is no such store, or not any more");
	message_hint("to see them: " ADMIN_NAME " workers");
	exit(ADMIN_FAILED);
}

/* Done where all went that may: leases stay until they end. A kept store is not what was asked for.
 */
static int judge(const struct json_object *document, const char *store)
{
	if (jsonin_u64(document, "failed"))
		return ADMIN_FAILED;
	if (jsonin_flag(document, "leases_stay"))
		return ADMIN_OK;
	for (size_t i = 0; i < jsonin_count(document, "actions") && !jsonin_u64(document, "stores");
	     i++) {
		const struct json_object *action = jsonin_at(document, "actions", i);
		if (strcmp(jsonin_text(action, "what"), "kept") == 0 &&
		    strcmp(jsonin_text(action, "path"), jsonin_text(document, "path")) == 0)
			return message_fail(store, "stays: %s", jsonin_text(action, "evidence"));
	}
	return ADMIN_OK;
}

static void print(const struct admin *a, const struct json_object *document)
{
	for (size_t i = 0; i < jsonin_count(document, "actions"); i++) {
		const struct json_object *o = jsonin_at(document, "actions", i);

		if (jsonin_has(o, "error"))
			message_fail(jsonin_text(o, "path"), "%s", jsonin_text(o, "error"));
	}
	gctable_print(a, document, jsonin_u64(document, "tier_files") != 0);
	gctable_total(a, document);
}

int cmd_reap(struct admin *a, int argc, char **argv)
{
	static const char *const names[] = {"STORE", NULL};
	struct command_line line = OPTIONS_LINE(
		a, "reap STORE",
		"Has the daemon remove the dead store STORE (a name, or the store's path) now.\v"
		"The daemon does so by itself when an owner dies; this is for seeing why one is "
		"still there. A store whose owner lives, and a kept one, stays. Users may have "
		"their own stores reaped. Without a daemon: \"" ADMIN_NAME " gc\".",
		.names = names, .n_needed = 1);
	struct json_object *document = NULL;
	char path[PATH_MAX], *json;
	size_t n;

	options_parse(&line, argc, argv);
	_client_ struct shmstore_client *c = asking_open(a);
	find_path(a, line.args[0], path);
	shmstore_client_set_timeout(c, ASKING_SURVEY_MS);
	int r = shmstore_client_reap(c, path, &json, &n);
	if (r == 0)
		r = asking_parse(json, n, &document);
	asking_check(c, r == -EBADMSG ? line.args[0] : "reap", r);
	int status = judge(document, line.args[0]);
	json_show(a, document, print);
	return status;
}
