/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_gc.c: "shmstore-admin gc [--dry-run]": removes what nobody owns, each step with the evidence for it. What is unsure the
 * library keeps, and says so; that is no failure. A step that did not succeed is.
 */
#include <inttypes.h>
#include <shmstore/inspect.h>
#include <stdio.h>

#include "human.h"
#include "jsonout.h"
#include "message.h"
#include "opening.h"
#include "options.h"
#include "progress.h"
#include "table.h"

enum {
	WHAT,
	BYTES,
	OBJECTS,
	PATH,
	EVIDENCE,
	N_COLUMNS
};
static const struct table_column columns[N_COLUMNS] = {
	[WHAT] = {"WHAT", 0}, [BYTES] = {"FREES", TABLE_RIGHT},     [OBJECTS] = {"OBJECTS", TABLE_RIGHT},
	[PATH] = {"PATH", 0}, [EVIDENCE] = {"BECAUSE", TABLE_WRAP},
};

struct gc {
	const struct admin *admin;
	bool dry_run;
	struct json_object *actions;
	struct table table;
	uint64_t n_actions, n_kept, n_failed, bytes;
};

static const char *what_name(enum shmstore_gc_what what)
{
	switch (what) {
	case SHMSTORE_GC_STORE:
		return "store";
	case SHMSTORE_GC_LEASE:
		return "lease";
	case SHMSTORE_GC_TORN:
		return "torn";
	case SHMSTORE_GC_POOL:
		return "pool";
	case SHMSTORE_GC_PEER:
		return "peer";
	case SHMSTORE_GC_KEPT:
		return "kept";
	}
	return "other";
}

static int add(const struct shmstore_gc_action *action, void *arg)
{
	struct gc *gc = arg;

	if (gc->admin->json) {
		struct json_object *o = json_new();
		json_text(o, "what", what_name(action->what));
		json_text(o, "path", action->path);
		json_u64(o, "bytes", action->bytes);
		json_u64(o, "objects", action->n_objects);
		json_text(o, "evidence", action->evidence);
		json_text(o, "error", action->error ? shmstore_strerror(action->error) : NULL);
		json_append(gc->actions, o);
	} else {
		struct table *t = &gc->table;
		table_row(t);
		table_text(t, WHAT, what_name(action->what));
		if (action->what == SHMSTORE_GC_KEPT)
			table_color(t, WHAT, "cyan");
		table_size(t, BYTES, action->bytes);
		table_count(t, OBJECTS, action->n_objects);
		table_text(t, PATH, action->path);
		table_text(t, EVIDENCE, action->evidence);
	}
	if (action->error) {
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

static void finish(struct gc *gc, const struct shmstore_gc_report *report)
{
	char size[HUMAN_SIZE];

	if (gc->admin->json) {
		struct json_object *o = json_new();
		json_flag(o, "dry_run", gc->dry_run);
		json_child(o, "actions", gc->actions);
		json_u64(o, "freed", report->freed);
		json_u64(o, "stores", report->n_stores);
		json_u64(o, "leases", report->n_leases);
		json_u64(o, "objects", report->n_objects);
		json_u64(o, "failed", gc->n_failed);
		json_print(o);
		return;
	}
	table_finish(&gc->table);
	if (!gc->n_actions) {
		puts(gc->n_kept ? "nothing else: no garbage" : "no garbage");
		return;
	}
	printf("%s%s: ", gc->dry_run ? "would free " : "freed ", human_bytes(report->freed, gc->admin->bytes, size));
	printf("%s, ", human_count(report->n_stores, "store", size));
	printf("%s, ", human_count(report->n_leases, "lease", size));
	printf("%s\n", human_count(report->n_objects, "file", size));
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct command_line *line = state->input;
	struct gc *gc = line->own;

	if (key != 'n')
		return options_common(key, arg, state);
	gc->dry_run = true;
	return 0;
}

int cmd_gc(struct admin *a, int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"dry-run", 'n', NULL, 0, "only say what would go, and why", 0},
		{NULL, 0, NULL, 0, NULL, 0},
	};
	static const struct argp argp = {
		options,
		parse,
		"gc",
		"Removes what dead processes left: their stores (unless they are kept ones), expired leases, half-made "
		"files, and "
		"addresses of stores that are gone. Live processes are not disturbed; what is unsure stays.",
		options_children,
		NULL,
		NULL,
	};
	struct gc gc = {.admin = a};
	struct command_line line = {.admin = a, .own = &gc};
	struct shmstore_gc_report report;
	struct shmstore_partition *p;

	options_parse(&argp, &line, argc, argv);
	int status = opening_partition(a, &p);
	if (status)
		return status;
	if (a->json)
		gc.actions = json_new_list();
	else
		table_init(&gc.table, a, columns, N_COLUMNS);
	progress_begin("gc");
	int r = shmstore_partition_gc_plan(p, gc.dry_run ? SHMSTORE_GC_DRY_RUN : 0, add, &gc, &report);
	progress_end();
	if (r < 0)
		status = message_error(shmstore_partition_path(p), r);
	else
		finish(&gc, &report);
	if (gc.n_failed)
		status = ADMIN_FAILED;
	shmstore_partition_unref(p);
	return status;
}
