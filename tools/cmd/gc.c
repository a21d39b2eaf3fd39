/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_gc.c: "shmstore-admin gc [--dry-run]": removes what nobody owns, each step with the evidence for it. What is unsure the
 * library keeps, and says so; that is no failure. A step that did not succeed is.
 */
#include <shmstore/inspect.h>
#include <stdio.h>

#include "gctable.h"
#include "jsonout.h"
#include "message.h"
#include "opening.h"
#include "options.h"
#include "progress.h"
#include "tierstate.h"

struct gc {
	const struct admin *admin;
	bool dry_run;
	struct json_object *actions;
	struct table table;
	uint64_t n_actions, n_kept, n_failed, bytes;
};

static int add(const struct shmstore_gc_action *action, void *arg)
{
	struct gc *gc = arg;

	if (gc->admin->json) {
		struct json_object *o = jsonmake_new();
		jsonmake_prose(o, "what", shmstore_gc_what_name(action->what));
		jsonmake_prose(o, "path", action->path);
		jsonmake_u64(o, "bytes", action->bytes);
		jsonmake_u64(o, "tier_bytes", action->tier_bytes);
		jsonmake_u64(o, "objects", action->n_objects);
		jsonmake_prose(o, "evidence", action->evidence);
		jsonmake_prose(o, "error", action->error ? shmstore_strerror(action->error) : NULL);
		jsonmake_append(gc->actions, o);
	} else {
		const struct gctable_row row = {.what = shmstore_gc_what_name(action->what),
						.path = action->path,
						.evidence = action->evidence,
						.bytes = action->bytes,
						.tier_bytes = action->tier_bytes,
						.n_objects = action->n_objects};
		gctable_add(&gc->table, &row);
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
	if (gc->admin->json) {
		struct json_object *o = jsonmake_new();
		jsonmake_flag(o, "dry_run", gc->dry_run);
		jsonmake_child(o, "actions", gc->actions);
		jsonmake_u64(o, "freed", report->freed);
		jsonmake_u64(o, "stores", report->n_stores);
		jsonmake_u64(o, "leases", report->n_leases);
		jsonmake_u64(o, "objects", report->n_objects);
		jsonmake_u64(o, "tier_freed", report->tier_freed);
		jsonmake_u64(o, "tier_files", report->n_tier);
		jsonmake_u64(o, "failed", gc->n_failed);
		json_print(o);
		return;
	}
	table_finish(&gc->table);
	if (!gc->n_actions) {
		puts(gc->n_kept ? "nothing else: no garbage" : "no garbage");
		return;
	}
	gctable_total(gc->admin, gc->dry_run ? "would free" : "freed",
		      &(struct gctable_sum){.freed = report->freed,
					    .n_stores = report->n_stores,
					    .n_leases = report->n_leases,
					    .n_files = report->n_objects,
					    .tier_freed = report->tier_freed,
					    .n_tier = report->n_tier});
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
	static const struct argp argp = OPTIONS_ARGP(
		options, parse, "gc",
		"Removes what dead processes left: their stores (unless they are kept ones), expired leases, "
		"half-made files, addresses of stores that are gone, and tier files that no name leads to. Live "
		"processes are not disturbed; what is unsure stays.");
	struct gc gc = {.admin = a};
	struct command_line line = {.admin = a, .own = &gc};
	struct shmstore_gc_report report;
	struct shmstore_partition *p;
	char tier[PATH_MAX];

	options_parse(&argp, &line, argc, argv);
	int status = opening_partition(a, &p);
	if (status)
		return status;
	if (a->json)
		gc.actions = jsonmake_new_list();
	else
		gctable_init(&gc.table, a, tierstate_directory(p, tier));
	progress_begin("gc");
	int r = shmstore_partition_gc_plan(p, gc.dry_run ? SHMSTORE_GC_DRY_RUN : 0, add, &gc, &report);
	progress_end();
	if (r < 0)
		status = message_detail(shmstore_partition_path(p), r);
	else
		finish(&gc, &report);
	if (gc.n_failed)
		status = ADMIN_FAILED;
	shmstore_partition_unref(p);
	return status;
}
