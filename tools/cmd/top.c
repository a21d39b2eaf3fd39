/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_top.c: "shmstore-admin top": the partition live. A frame costs one statfs and one page per store, whatever the number
 * of objects: it shows what the stores' ledgers say (rates are differences of their counters), while space is the file
 * system's word. Where shmstored watches the partition it has looked already: then a frame is two questions, and shows also what one may
 * not look into oneself; should it end, our own scan goes on. On a terminal frames overwrite each other; elsewhere they follow one another; with --json each is a line.
 */
#include <inttypes.h>
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
#include "jsonout.h"
#include "message.h"
#include "opening.h"
#include "options.h"
#include "sample.h"
#include "table.h"
#include "tierstate.h"

enum {
	OPTION_SORT = 0x100
};
#define DAEMON_MS 500u /* longer than that it is not waited for */

enum sort {
	SORT_LINKED,
	SORT_MAPPED,
	SORT_PUT,
	SORT_GET,
	SORT_NAME,
	N_SORTS
};
static const char *const sort_names[N_SORTS] = {"linked", "mapped", "put", "get", "name"};

struct top {
	const struct admin *admin;
	enum sort sort;
	struct frames frames;
	struct sample now;
	struct shmstore_client *client; /* NULL: we scan ourselves */
	struct shmstore_partition *p;   /* NULL: the daemon was enough so far */
	char path[PATH_MAX];            /* as the user means it; for the daemon */
};

/* ---- JSON ---- */

static void json_rates(struct json_object *o, const struct sample_rates *r)
{
	jsonmake_real(o, "put_per_s", r->put_n);
	jsonmake_real(o, "put_bytes_per_s", r->put_bytes);
	jsonmake_real(o, "get_per_s", r->get_n);
	jsonmake_real(o, "get_bytes_per_s", r->get_bytes);
	jsonmake_real(o, "handoff_per_s", r->handoff_n);
	jsonmake_real(o, "adopt_per_s", r->adopt_n);
	jsonmake_real(o, "delete_per_s", r->delete_n);
	jsonmake_real(o, "enospc_per_s", r->enospc_n);
	jsonmake_real(o, "evicted_per_s", r->evicted_n);
}

static void print_json(struct sample *s)
{
	struct json_object *o = jsonmake_new();
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	jsonmake_real(o, "time", (double)now.tv_sec + (double)now.tv_nsec / 1e9);
	jsonmake_prose(o, "partition", s->info.path);
	jsonmake_prose(o, "source", s->asked ? "daemon" : "scan");
	jsonmake_u64(o, "size", s->info.bytes_size);
	jsonmake_u64(o, "used", s->info.bytes_used);
	jsonmake_u64(o, "available", s->info.bytes_available);
	jsonmake_u64(o, "inodes_size", s->info.inodes_size);
	jsonmake_u64(o, "inodes_used", s->info.inodes_used);
	jsonmake_u64(o, "alive", s->n_alive);
	jsonmake_u64(o, "objects", s->n_objects);
	jsonmake_u64(o, "linked", s->linked);
	jsonmake_u64(o, "mapped", s->mapped);
	jsonmake_u64(o, "pool", s->pool);
	json_rates(o, &s->rates);
	jsonmake_child(o, "tier", s->tier);
	s->tier = NULL; /* o's now */
	struct json_object *list = jsonmake_child(o, "stores", jsonmake_new_list());
	for (size_t i = 0; i < s->n_stores; i++) {
		const struct sample_store *store = &s->stores[i];
		struct json_object *item = jsonmake_new();
		jsonmake_prose(item, "name", store->name);
		jsonmake_i64(item, "pid", store->pid);
		jsonmake_flag(item, "alive", store->alive == SHMSTORE_ALIVE);
		jsonmake_flag(item, "keep", store->keep);
		jsonmake_prose(item, "label", store->label);
		jsonmake_u64(item, "objects", store->counters.linked_n);
		jsonmake_u64(item, "linked", store->counters.linked_bytes);
		jsonmake_u64(item, "mapped", store->counters.mapped_bytes);
		jsonmake_u64(item, "pool", store->counters.pool_bytes);
		jsonmake_u64(item, "enospc", store->counters.enospc_n);
		json_rates(item, &store->rates);
		jsonmake_append(list, item);
	}
	json_print_line(o);
}

/* ---- text ---- */

static int compare_u64(uint64_t a, uint64_t b)
{
	return (a < b) - (a > b);
}

static int compare_stores(const void *x, const void *y, void *arg)
{
	const struct sample_store *a = x, *b = y;
	int r = 0;

	switch (*(enum sort *)arg) {
	case SORT_LINKED:
		r = compare_u64(a->counters.linked_bytes, b->counters.linked_bytes);
		break;
	case SORT_MAPPED:
		r = compare_u64(a->counters.mapped_bytes, b->counters.mapped_bytes);
		break;
	case SORT_PUT:
		r = compare_u64((uint64_t)a->rates.put_bytes, (uint64_t)b->rates.put_bytes);
		break;
	case SORT_GET:
		r = compare_u64((uint64_t)a->rates.get_bytes, (uint64_t)b->rates.get_bytes);
		break;
	case SORT_NAME:
	case N_SORTS:
		break;
	}
	return r ? r : strcmp(a->name, b->name);
}

static void print_bar(const struct top *top, const struct shmstore_partition_info *info)
{
	char used[HUMAN_SIZE], size[HUMAN_SIZE], available[HUMAN_SIZE];
	const bool exact = top->admin->bytes;
	unsigned width = top->frames.screen.columns > 100  ? 50
			 : top->frames.screen.columns > 70 ? top->frames.screen.columns - 50
							   : 20;

	human_bytes(info->bytes_used, exact, used);
	if (!info->bytes_size) {
		printf("%s used, no limit\n", used);
		return;
	}
	double fill = (double)info->bytes_used / (double)info->bytes_size;
	unsigned full = (unsigned)lround(fill * width);
	const char *color = fill >= 0.95 ? "\033[31m" : fill >= 0.8 ? "\033[33m" : "\033[32m";
	putchar('[');
	fputs(top->admin->color ? color : "", stdout);
	for (unsigned i = 0; i < width; i++)
		putchar(i < full ? '#' : ' ');
	fputs(top->admin->color ? "\033[0m" : "", stdout);
	printf("] %.1f %%  %s of %s, %s available\n", fill * 100, used, human_bytes(info->bytes_size, exact, size),
	       human_bytes(info->bytes_available, exact, available));
}

static const char *rate_bytes(const struct top *top, double bytes, char text[HUMAN_SIZE + 2])
{
	human_bytes((uint64_t)bytes, top->admin->bytes, text);
	return text;
}

static void print_rates(const struct top *top, const struct sample *s)
{
	char put[HUMAN_SIZE + 2], get[HUMAN_SIZE + 2];

	if (!s->has_rates) {
		puts("measuring rates ...");
		return;
	}
	printf("put %.0f/s %s/s, get %.0f/s %s/s, handoff %.0f/s, adopt %.0f/s, delete %.0f/s", s->rates.put_n,
	       rate_bytes(top, s->rates.put_bytes, put), s->rates.get_n, rate_bytes(top, s->rates.get_bytes, get),
	       s->rates.handoff_n, s->rates.adopt_n, s->rates.delete_n);
	if (s->rates.enospc_n > 0)
		printf(", refused for want of space %.0f/s", s->rates.enospc_n);
	if (s->rates.evicted_n > 0)
		printf(", evicted for room %.0f/s", s->rates.evicted_n);
	putchar('\n');
}

static void print_head(const struct top *top, const struct sample *s)
{
	char linked[HUMAN_SIZE], mapped[HUMAN_SIZE], pool[HUMAN_SIZE], clock[16];
	const bool exact = top->admin->bytes;
	time_t now = time(NULL);
	struct tm tm;

	localtime_r(&now, &tm);
	strftime(clock, sizeof(clock), "%H:%M:%S", &tm);
	printf("%s  %s%s%s%s", clock, s->info.path, s->info.huge[0] ? "  huge=" : "", s->info.huge,
	       s->asked ? "  from shmstored" : "  own scan");
	puts(top->frames.screen.keyboard ? "   (q quits, s sorts)" : "");
	print_bar(top, &s->info);
	printf("%s, ", human_count(s->n_stores, "store", linked));
	printf("%" PRIu64 " alive, %s: ", s->n_alive, human_count(s->n_objects, "object", linked));
	printf("linked %s, mapped %s, pool %s\n", human_bytes(s->linked, exact, linked),
	       human_bytes(s->mapped, exact, mapped), human_bytes(s->pool, exact, pool));
	if (s->tier) {
		fputs("disk tier: ", stdout);
		tierstate_print_asked(top->admin, s->tier);
	}
	print_rates(top, s);
}

#define COLUMNS(X)                           \
	X(NAME, "STORE", TABLE_TRUNC)        \
	X(PID, "PID", TABLE_RIGHT)           \
	X(STATE, "STATE", 0)                 \
	X(OBJECTS, "OBJECTS", TABLE_RIGHT)   \
	X(LINKED, "LINKED", TABLE_RIGHT)     \
	X(MAPPED, "MAPPED", TABLE_RIGHT)     \
	X(POOL, "POOL", TABLE_RIGHT)         \
	X(PUT, "PUT/s", TABLE_RIGHT)         \
	X(PUT_BYTES, "PUT B/s", TABLE_RIGHT) \
	X(GET, "GET/s", TABLE_RIGHT)         \
	X(ADOPT, "ADOPT/s", TABLE_RIGHT)     \
	X(DELETE, "DEL/s", TABLE_RIGHT)
TABLE_COLUMNS(columns, COLUMNS, N_COLUMNS);

static void print_store(struct table *t, const struct sample_store *s, bool has_rates)
{
	static const char *const states[] = {"dead", "alive", "?"};

	table_row(t);
	table_text(t, NAME, s->name);
	table_printf(t, PID, "%d", s->pid);
	table_text(t, STATE, s->alive == SHMSTORE_DEAD && s->keep ? "kept" : states[s->alive]);
	if (s->alive == SHMSTORE_DEAD)
		table_color(t, STATE, s->keep ? "cyan" : "red");
	table_count(t, OBJECTS, s->counters.linked_n);
	table_size(t, LINKED, s->counters.linked_bytes);
	table_size(t, MAPPED, s->alive == SHMSTORE_DEAD ? 0 : s->counters.mapped_bytes);
	table_size(t, POOL, s->alive == SHMSTORE_DEAD ? 0 : s->counters.pool_bytes);
	if (!has_rates)
		return;
	table_printf(t, PUT, "%.0f", s->rates.put_n);
	table_size(t, PUT_BYTES, (uint64_t)s->rates.put_bytes);
	table_printf(t, GET, "%.0f", s->rates.get_n);
	table_printf(t, ADOPT, "%.0f", s->rates.adopt_n);
	table_printf(t, DELETE, "%.0f", s->rates.delete_n);
}

static void print_text(struct top *top, struct sample *s)
{
	struct table t;
	size_t room = top->frames.screen.rows > 9 ? top->frames.screen.rows - 7 - (s->tier != NULL) : 1,
	       shown = s->n_stores;

	if (top->frames.screen.live && shown > room)
		shown = room;
	screen_frame(&top->frames.screen);
	print_head(top, s);
	putchar('\n');
	/* a copy of the order: the sample itself stays sorted by path for the next comparison */
	struct sample_store *stores = malloc((s->n_stores + 1) * sizeof(*stores));
	if (!stores)
		message_no_memory();
	if (s->n_stores) {
		memcpy(stores, s->stores, s->n_stores * sizeof(*stores));
		qsort_r(stores, s->n_stores, sizeof(*stores), compare_stores, &top->sort);
	}
	struct table_column fitting[N_COLUMNS];
	memcpy(fitting, columns, sizeof(fitting));
	if (top->frames.screen.live && top->frames.screen.columns < 100)
		fitting[POOL].flags = fitting[ADOPT].flags = fitting[DELETE].flags = TABLE_HIDDEN;
	table_init(&t, top->admin, fitting, N_COLUMNS);
	for (size_t i = 0; i < shown; i++)
		print_store(&t, &stores[i], s->has_rates);
	table_finish(&t);
	free(stores);
	if (shown < s->n_stores)
		printf("... and %zu more", s->n_stores - shown);
	else if (!s->n_stores)
		puts("no stores");
	if (!top->frames.screen.live)
		putchar('\n');
	fflush(stdout);
}

/* ---- the loop ---- */

/* The partition's real path where the daemon watches it, with a connection to it; else we scan. */
static void find_daemon(struct top *top)
{
	struct sample probe = {.stores = NULL};
	char path[ASKING_PARTITION];

	/* Its ledgers are of whole seconds: faster frames need our own look. */
	if (top->frames.interval < 1 || !opening_path(top->admin, path) || !realpath(path, top->path) ||
	    asking_client(top->admin, DAEMON_MS, &top->client) < 0)
		return;
	if (asking_elsewhere(top->client, top->path, path) ||
	    sample_ask(top->client, top->path, &probe, &(struct sample){.stores = NULL}) < 0)
		top->client = shmstore_client_free(top->client);
	sample_deinit(&probe);
}

/* The sample after before; the daemon's as long as it answers. 0, -errno; 1: the partition cannot be opened, which was said. */
static int sample(struct top *top, struct sample *ret, const struct sample *before)
{
	static const struct sample none;

	if (top->client) {
		if (sample_ask(top->client, top->path, ret, before) == 0)
			return 0;
		sample_deinit(ret);
		top->client = shmstore_client_free(top->client);
	}
	*ret = none;
	if (!top->p && opening_partition(top->admin, &top->p))
		return 1;
	/* The daemon's sample cannot be compared with ours: its clock is another. */
	return sample_take(top->p, ret, before->asked ? &none : before);
}

static int take(void *arg)
{
	struct top *top = arg;
	struct sample before = top->now;
	int r = sample(top, &top->now, &before);

	sample_deinit(&before);
	return r;
}

/* Rates need two samples; only people want to see something before. */
static bool show(void *arg)
{
	struct top *top = arg;

	if (!top->now.has_rates && !top->frames.screen.live)
		return false;
	if (top->admin->json)
		print_json(&top->now);
	else
		print_text(top, &top->now);
	return top->now.has_rates;
}

static void sort(void *arg)
{
	struct top *top = arg;

	top->sort = (enum sort)((top->sort + 1) % N_SORTS);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct command_line *line = state->input;
	struct top *top = line->own;

	if (key != OPTION_SORT)
		return frames_parse(&top->frames, key, arg, state);
	top->sort = (enum sort)options_one_of(state, "--sort", arg, sort_names, N_SORTS);
	return 0;
}

int cmd_top(struct admin *a, int argc, char **argv)
{
	static const struct argp_option options[] = {
		FRAMES_OPTIONS("2"),
		{"sort", OPTION_SORT, "COLUMN", 0, "linked (default), mapped, put, get or name", 0},
		{NULL, 0, NULL, 0, NULL, 0},
	};
	static const struct argp argp = OPTIONS_ARGP(
		options, parse, "top",
		"Shows the partition and its stores live. Keys: q quits, s sorts by the next column.\v"
		"Numbers of stores are what their owners write down; space is what the file system says. With "
		"--json, one object per interval and line. Without a terminal, frames follow one another.");
	struct top top = {
		.admin = a,
		.frames = {.take = take, .show = show, .sort = sort, .arg = &top, .interval = 2},
	};
	struct command_line line = {.admin = a, .own = &top};

	options_parse(&argp, &line, argc, argv);
	int status = ADMIN_OK;
	find_daemon(&top);
	if (!top.client)
		status = opening_partition(a, &top.p);
	if (status)
		return status;
	int r = frames_run(&top.frames, !a->json);
	sample_deinit(&top.now);
	if (r < 0)
		status = message_error(top.p ? shmstore_partition_path(top.p) : top.path, r);
	else if (r > 0)
		status = ADMIN_FAILED;
	shmstore_client_free(top.client);
	shmstore_partition_unref(top.p);
	return status;
}
