/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_top.c: "shmstore-admin top": the partition live. A frame costs one statfs and one page per
 * store, whatever the number of objects: it shows what the stores' ledgers say (rates are
 * differences of their counters), while space is the file system's word. Where shmstored watches
 * the partition it has looked already: then a frame is two questions, and shows also what one may
 * not look into oneself; should it end, our own scan goes on. On a terminal frames overwrite each
 * other; elsewhere they follow one another; with --json each is a line.
 */
#include <errno.h>
#include <json-c/json.h>
#include <math.h>
#include <shmstore/daemon.h>
#include <shmstore/inspect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "admin.h"
#include "asking.h"
#include "counters.def"
#include "fields.h"
#include "frames.h"
#include "jsonin.h"
#include "opening.h"
#include "options.h"
#include "table.h"

/*
 * A partition and its stores at one moment, as the daemon's documents have them: by our own scan,
 * or asked of the daemon, whose time is that of its last look. Counters that run backwards and
 * gauges below zero count as none.
 */
struct sample {
	int64_t taken_ns;           /* 0: there is none yet */
	bool asked;                 /* the daemon's, not our own scan */
	char huge[16];              /* "": not known */
	struct json_object *space;  /* a partition of STATUS */
	struct json_object *stores; /* one of WORKERS */
};

#define DAEMON_MS 500u /* longer than that it is not waited for */

/* The words of --sort, and the member that each goes by. */
static const char *const sort_names[] = {"linked", "mapped", "put", "get", "name"};
static const char *const sort_members[] = {"-linked", "-mapped", "-put_bytes_per_s",
					   "-get_bytes_per_s", "name"};
#define N_SORTS (sizeof(sort_names) / sizeof(sort_names[0]))

struct top {
	struct admin *admin;
	size_t sort;
	struct frames frames;
	struct sample now, before;
	struct shmstore_client *client; /* NULL: we scan ourselves */
	struct shmstore_partition *p;   /* NULL: the daemon was enough so far */
	char path[PATH_MAX];            /* as the user means it; for the daemon */
};

/* ---- samples ---- */

static int add_store(const struct shmstore_store_info *info, void *arg)
{
	struct json_object *o = jsonmake_append(arg, jsonmake_new());

	fields_of(o, info, PROSE(name), PROSE(path), PROSE(label), SAME(pid), PLACE("alive"),
		  SAME(keep), SAME(created_ns));
	if (info->alive != SHMSTORE_ALIVE_UNKNOWN)
		jsonmake_flag(o, "alive", info->alive == SHMSTORE_ALIVE);
	fields_add(jsonmake_child(o, "ledger", jsonmake_new()), of_counters, &info->counters);
	return 0;
}

/* Samples now. 0, or as shmstore_partition_stores(); sample_deinit() is owed in both cases. */
static int sample_take(struct shmstore_partition *p, struct sample *ret)
{
	struct shmstore_partition_info info = {.size = sizeof(info)};
	int r = shmstore_partition_info(p, &info);

	*ret = (struct sample){.space = jsonmake_new(), .stores = jsonmake_new()};
	if (r < 0)
		return r;
	fields_of(ret->space, &info, FIELD_AS(FIELD_PROSE, path, "partition"),
		  FIELD(bytes_size, "size"), FIELD(bytes_used, "used"),
		  FIELD(bytes_available, "available"), SAME(inodes_size), SAME(inodes_used));
	snprintf(ret->huge, sizeof(ret->huge), "%s", info.huge);
	r = shmstore_partition_stores(p, add_store,
				      jsonmake_child(ret->stores, "workers", jsonmake_new_list()));
	if (r == 0)
		ret->taken_ns = frames_now();
	return r;
}

/* The object of the partition at path. */
static int ask(struct shmstore_client *c, enum shmstore_query what, const char *path,
	       struct json_object **ret)
{
	_json_ struct json_object *document = NULL;
	int r = asking_ask(c, what, path, &document);

	if (r == 0 && jsonin_count(document, "partitions") == 1)
		*ret = json_object_get(jsonin_at(document, "partitions", 0));
	return r == 0 && !*ret ? -EBADMSG : r;
}

/*
 * The same as the daemon c tells it of the partition at path: as of its last second, and those
 * stores only that we may see. 0, or as asking_ask(). sample_deinit() is owed in both cases.
 */
static int sample_ask(struct shmstore_client *c, const char *path, struct sample *ret)
{
	int r;

	*ret = (struct sample){.asked = true};
	r = ask(c, SHMSTORE_QUERY_STATUS, path, &ret->space);
	if (r == 0)
		r = ask(c, SHMSTORE_QUERY_WORKERS, path, &ret->stores);
	if (r == 0)
		ret->taken_ns = llround(jsonin_real(ret->stores, "ledgers_time") * 1e9);
	return r;
}

static void sample_deinit(struct sample *s)
{
	jsonin_free(s->space);
	jsonin_free(s->stores);
	*s = (struct sample){.taken_ns = 0};
}

/* ---- the document ---- */

static const struct {
	const char *name, *counter;
} rates[] = {
	{"put_per_s", "put_n"},         {"put_bytes_per_s", "put_bytes"},
	{"get_per_s", "get_n"},         {"get_bytes_per_s", "get_bytes"},
	{"handoff_per_s", "handoff_n"}, {"adopt_per_s", "adopt_n"},
	{"delete_per_s", "delete_n"},   {"enospc_per_s", "enospc_n"},
	{"evicted_per_s", "evicted_n"},
};
#define N_RATES (sizeof(rates) / sizeof(rates[0]))
/* Of a dead store the latter two are nobody's. */
static const char *const gauges[] = {"objects", "linked", "mapped", "pool"};
#define N_GAUGES (sizeof(gauges) / sizeof(gauges[0]))

struct sums {
	uint64_t n_alive, gauges[N_GAUGES];
	double rates[N_RATES];
};

/* May rates be told of now: are both of one clock, and apart? */
static bool sample_has_rates(const struct sample *now, const struct sample *before)
{
	return before->taken_ns && before->asked == now->asked && now->taken_ns > before->taken_ns;
}

/* A counter's difference per second. A counter that fell belongs to another life of the store. */
static double rate(uint64_t now, uint64_t before, double seconds)
{
	return now > before ? (double)(now - before) / seconds : 0;
}

static void add_rates(struct json_object *o, const struct json_object *now,
		      const struct json_object *was, double seconds, struct sums *sums)
{
	const bool same = jsonin_i64(was, "pid") == jsonin_i64(now, "pid") &&
			  jsonin_i64(was, "created_ns") == jsonin_i64(now, "created_ns");

	for (size_t i = 0; i < N_RATES; i++) {
		double value =
			rate(jsonin_u64(jsonin_object(now, "ledger"), rates[i].counter),
			     same ? jsonin_u64(jsonin_object(was, "ledger"), rates[i].counter) : 0,
			     seconds);

		jsonmake_real(o, rates[i].name, value);
		sums->rates[i] += value;
	}
}

static void add_gauges(struct json_object *o, const struct json_object *store, bool people,
		       struct sums *sums)
{
	const bool alive = jsonin_flag(store, "alive"), dead = jsonin_has(store, "alive") && !alive;

	for (size_t i = 0; i < N_GAUGES; i++) {
		uint64_t value = jsonin_u64(jsonin_object(store, "ledger"), gauges[i]);
		bool nobodys = dead && i >= 2;

		value = value > INT64_MAX ? 0 : value;
		sums->gauges[i] += nobodys ? 0 : value;
		jsonmake_u64(o, gauges[i], people && nobodys ? 0 : value);
	}
	sums->n_alive += !dead;
	jsonmake_u64(o, "enospc", jsonin_u64(jsonin_object(store, "ledger"), "enospc_n"));
	if (people)
		jsonmake_text(o, "state",
			      alive                        ? "alive"
			      : !dead                      ? "?"
			      : jsonin_flag(store, "keep") ? "kept"
							   : "dead");
}

static void add_stores(struct json_object *list, const struct sample *now,
		       const struct sample *before, bool people, struct sums *sums)
{
	static const char *const order[] = {"path", NULL}, *const own[] = {"pid", "alive", "keep",
									   NULL};
	const double seconds = (double)(now->taken_ns - before->taken_ns) / 1e9;
	struct json_object *index = jsonmake_new(); /* the stores by their paths */
	size_t n;
	const struct json_object **stores = jsonin_sorted(now->stores, "workers", order, &n);

	for (size_t i = 0; i < jsonin_count(before->stores, "workers"); i++) {
		struct json_object *store = jsonin_at(before->stores, "workers", i);

		jsonmake_child(index, jsonin_text(store, "path"), json_object_get(store));
	}
	for (size_t i = 0; i < n; i++) {
		struct json_object *o = jsonmake_append(list, jsonmake_new());

		jsonmake_child(o, "name", json_object_get(jsonin_at_path(stores[i], "name|path")));
		jsonin_copy(o, stores[i], own);
		jsonmake_flag(o, "alive", jsonin_flag(stores[i], "alive"));
		jsonmake_prose(o, "label", jsonin_text(stores[i], "label"));
		add_gauges(o, stores[i], people, sums);
		if (sample_has_rates(now, before))
			add_rates(o, stores[i],
				  jsonin_object(index, jsonin_text(stores[i], "path")), seconds,
				  sums);
	}
	free(stores);
	jsonin_free(index);
}

/* The document of now. For people it says each store's state, and a dead store maps nothing and has
 * no pool. */
static struct json_object *sample_document(const struct sample *now, const struct sample *before,
					   bool people)
{
	static const char *const space[] = {"size",        "used",        "available",
					    "inodes_size", "inodes_used", NULL},
				 *const tier[] = {"tier", NULL};
	struct json_object *o = jsonmake_new(), *list = jsonmake_new_list();
	struct sums sums = {0};
	struct timespec t;

	add_stores(list, now, before, people, &sums);
	clock_gettime(CLOCK_REALTIME, &t);
	jsonmake_real(o, "time", (double)t.tv_sec + (double)t.tv_nsec / 1e9);
	jsonmake_prose(o, "partition", jsonin_text(now->space, "partition"));
	jsonmake_prose(o, "source", now->asked ? "daemon" : "scan");
	jsonin_copy(o, now->space, space);
	jsonmake_u64(o, "alive", sums.n_alive);
	for (size_t i = 0; i < N_GAUGES; i++)
		jsonmake_u64(o, gauges[i], sums.gauges[i]);
	for (size_t i = 0; sample_has_rates(now, before) && i < N_RATES; i++)
		jsonmake_real(o, rates[i].name, sums.rates[i]);
	jsonin_copy(o, now->space, tier);
	jsonmake_child(o, "stores", list);
	return o;
}

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

	top->admin->narrow = f->live && f->columns < 100;
	print_head(top, o);
	putchar('\n');
	table_init(&t, top->admin, columns, sizeof(columns) / sizeof(columns[0]));
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
