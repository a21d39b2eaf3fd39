/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gc.c: "shmstore-admin gc [--dry-run]": removes what nobody owns, each step with the evidence for
 * it. The library keeps doubtful things, and says so; that is no failure. A step that did not
 * succeed is. --all: the same in each partition that lies at the root of a tmpfs of this host, or
 * one directory below.
 */
#include <dirent.h>
#include <shmstore/inspect.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "fields.h"
#include "gctable.h"
#include "jsonin.h"
#include "jsonout.h"
#include "message.h"
#include "mountinfo.h"
#include "opening.h"
#include "options.h"
#include "progress.h"
#include "tierstate.h"

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

static void print_text(const struct gc *gc, const struct json_object *o, bool tier)
{
	gctable_print(gc->admin, o, tier);
	if (gc->n_actions)
		gctable_total(gc->admin, o);
	else
		puts(gc->n_failed
			     ? "no other garbage was found, and not everything could be looked at"
		     : gc->n_kept ? "nothing else: no garbage"
				  : "no garbage");
}

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
		print_text(gc, o, tierstate_directory(p, tier));
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
