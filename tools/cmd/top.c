/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_top.c: "shmstore-admin top": the partition live. A frame costs one statfs and one page per
 * store, whatever the number of objects: it shows what the stores' ledgers say (rates are
 * differences of their counters), while space is the file system's word. Where shmstored watches
 * the partition it has looked already: then a frame is two questions, and shows also what one may
 * not look into oneself; should it end, our own scan goes on. On a terminal frames overwrite each
 * other; elsewhere they follow one another; with --json each is a line.
 */
#include <math.h>
#include <shmstore/daemon.h>
#include <shmstore/inspect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "asking.h"
#include "frames.h"
#include "human.h"
#include "jsonin.h"
#include "jsonout.h"
#include "message.h"
#include "opening.h"
#include "options.h"
#include "sample.h"
#include "table.h"
#include "tierstate.h"

#define DAEMON_MS 500u /* longer than that it is not waited for */

/* The words of --sort, and the member that each goes by. */
static const char *const sort_names[] = {"linked", "mapped", "put", "get", "name"};
static const char *const sort_members[] = {"-linked", "-mapped", "-put_bytes_per_s",
					   "-get_bytes_per_s", "name"};
#define N_SORTS (sizeof(sort_names) / sizeof(sort_names[0]))

struct top {
	const struct admin *admin;
	size_t sort;
	struct frames frames;
	struct sample now, before;
	struct shmstore_client *client; /* NULL: we scan ourselves */
	struct shmstore_partition *p;   /* NULL: the daemon was enough so far */
	char path[PATH_MAX];            /* as the user means it; for the daemon */
};

/* ---- text ---- */

static void print_bar(const struct top *top, const struct json_object *o)
{
	const bool exact = top->admin->bytes;
	unsigned width = top->frames.columns > 100  ? 50
			 : top->frames.columns > 70 ? top->frames.columns - 50
						    : 20;

	if (!jsonin_u64(o, "size")) {
		figure_print(o, exact, "{used:size} used, no limit\n");
		return;
	}
	double fill = (double)jsonin_u64(o, "used") / (double)jsonin_u64(o, "size");
	unsigned full = (unsigned)lround(fill * width);
	const char *color = fill >= 0.95 ? "\033[31m" : fill >= 0.8 ? "\033[33m" : "\033[32m";
	putchar('[');
	fputs(top->admin->color ? color : "", stdout);
	for (unsigned i = 0; i < width; i++)
		putchar(i < full ? '#' : ' ');
	fputs(top->admin->color ? "\033[0m" : "", stdout);
	printf("] %.1f %%", fill * 100);
	figure_print(o, exact, "  {used:size} of {size:size}, {available:size} available\n");
}

static void print_rates(const struct json_object *o, bool exact)
{
	if (!jsonin_has(o, "put_per_s")) {
		puts("measuring rates ...");
		return;
	}
	figure_print(o, exact,
		     "put {put_per_s:rate}/s {put_bytes_per_s:sizes}/s, get {get_per_s:rate}/s "
		     "{get_bytes_per_s:sizes}/s, handoff {handoff_per_s:rate}/s, adopt "
		     "{adopt_per_s:rate}/s, delete {delete_per_s:rate}/s"
		     "[enospc_per_s?, refused for want of space {enospc_per_s:rate}/s]"
		     "[evicted_per_s?, evicted for room {evicted_per_s:rate}/s]\n");
}

static void print_head(const struct top *top, const struct json_object *o)
{
	const struct sample *s = &top->now;

	printf("%s  %s%s%s%s", frames_clock(time(NULL)), jsonin_text(o, "partition"),
	       s->huge[0] ? "  huge=" : "", s->huge, s->asked ? "  from shmstored" : "  own scan");
	puts(top->frames.keyboard ? "   (q quits, s sorts)" : "");
	print_bar(top, o);
	printf("%s, ", human_count(jsonin_count(o, "stores"), "store"));
	figure_print(o, top->admin->bytes,
		     "{alive} alive, {objects:object}: linked {linked:size}, mapped {mapped:size}, "
		     "pool {pool:size}\n");
	if (jsonin_has(o, "tier")) {
		fputs("disk tier: ", stdout);
		tierstate_print_asked(top->admin, jsonin_object(o, "tier"));
	}
	print_rates(o, top->admin->bytes);
}

static void show_state(struct table *t, size_t column, const struct json_object *o)
{
	const char *state = jsonin_text(o, "state");

	if (strcmp(state, "alive") == 0)
		table_text(t, column, state);
	else
		table_state(t, column, state);
}

static const struct table_column columns[] = {
	{"STORE", TABLE_TRUNC, "name"},
	{"PID", FIGURE_COUNT, "pid"},
	{"STATE", .show = show_state},
	{"OBJECTS", FIGURE_COUNT, "objects"},
	{"LINKED", FIGURE_SIZE, "linked"},
	{"MAPPED", FIGURE_SIZE, "mapped"},
	{"POOL", FIGURE_SIZE | TABLE_WIDE, "pool"},
	{"PUT/s", FIGURE_RATE, "put_per_s", ""},
	{"PUT B/s", FIGURE_SIZES, "put_bytes_per_s", ""},
	{"GET/s", FIGURE_RATE, "get_per_s", ""},
	{"ADOPT/s", FIGURE_RATE | TABLE_WIDE, "adopt_per_s", ""},
	{"DEL/s", FIGURE_RATE | TABLE_WIDE, "delete_per_s", ""},
};

static void print_text(struct top *top, const struct json_object *o)
{
	const struct frames *f = &top->frames;
	const char *const order[] = {sort_members[top->sort], "name", NULL};
	size_t n, room = f->rows > 9 ? f->rows - 7 - jsonin_has(o, "tier") : 1;
	const struct json_object **stores = jsonin_sorted(o, "stores", order, &n);
	size_t shown = f->live && n > room ? room : n;
	struct table t;

	print_head(top, o);
	putchar('\n');
	table_init(&t, top->admin, columns, sizeof(columns) / sizeof(columns[0]));
	if (f->live && f->columns < 100)
		table_hide_wide(&t);
	for (size_t i = 0; i < shown; i++)
		table_object(&t, stores[i]);
	table_finish(&t);
	free(stores);
	if (shown < n)
		printf("... and %zu more", n - shown);
	else if (!n)
		puts("no stores");
	if (!f->live)
		putchar('\n');
}

/* ---- the loop ---- */

/* The partition's real path where the daemon watches it, with a connection to it; else we scan. */
static void find_daemon(struct top *top)
{
	struct sample probe = {.taken_ns = 0};
	char path[PATH_MAX];

	opening_path(top->admin, path);
	/* Its ledgers are of whole seconds: faster frames need our own look. */
	if (top->frames.interval < 1 || !realpath(path, top->path) ||
	    asking_client(top->admin, DAEMON_MS, &top->client) < 0)
		return;
	if (asking_elsewhere(top->client, top->path) ||
	    sample_ask(top->client, top->path, &probe) < 0)
		top->client = shmstore_client_free(top->client);
	sample_deinit(&probe);
}

/* The next sample; the daemon's as long as it answers. 0, -errno. */
static int take(void *arg)
{
	struct top *top = arg;

	sample_deinit(&top->before);
	top->before = top->now;
	top->now = (struct sample){.taken_ns = 0};
	if (top->client) {
		if (sample_ask(top->client, top->path, &top->now) == 0)
			return 0;
		sample_deinit(&top->now);
		top->client = shmstore_client_free(top->client);
	}
	int r = top->p ? 0 : shmstore_partition_open(top->path, opening_flags(top->admin), &top->p);
	return r < 0 ? r : sample_take(top->p, &top->now);
}

/* Rates need two samples; only people want to see something before. */
static bool show(void *arg)
{
	struct top *top = arg;
	const bool has_rates = sample_has_rates(&top->now, &top->before);

	if (!has_rates && !top->frames.live)
		return false;
	struct json_object *o = sample_document(&top->now, &top->before, !top->admin->json);
	if (top->admin->json) {
		json_print_line(o);
	} else {
		print_text(top, o);
		jsonin_free(o);
	}
	return has_rates;
}

int cmd_top(struct admin *a, int argc, char **argv)
{
	typedef struct top OF;
	static const struct options_row options[] = {
		FRAMES_OPTIONS("2"),
		{"sort", 0, "COLUMN", "linked (default), mapped, put, get or name", OPTIONS_WORD,
		 offsetof(OF, sort), .words = sort_names, .n_words = N_SORTS},
		{NULL},
	};
	struct top top = {
		.admin = a,
		.frames = {take, show, &top, &top.sort, N_SORTS, .interval = 2},
	};

	OPTIONS_PARSE(a, argc, argv, "top",
		      "Shows the partition and its stores live. Keys: q quits, s sorts by the next "
		      "column.\v"
		      "Numbers of stores are what their owners write down; space is what the file "
		      "system says. With --json, one object per interval and line. Without a "
		      "terminal, frames follow one another.",
		      .options = options, .own = &top);
	find_daemon(&top);
	if (!top.client)
		top.p = opening_partition(a);
	int r = frames_run(&top.frames, !a->json);
	sample_deinit(&top.now);
	sample_deinit(&top.before);
	if (r < 0 && top.p)
		r = message_error(shmstore_partition_path(top.p), r);
	else if (r < 0)
		r = opening_explain(a, top.path, r);
	shmstore_client_free(top.client);
	shmstore_partition_unref(top.p);
	return r;
}
