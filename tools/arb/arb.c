/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_arb.c: "shmstore-admin arb SUBCOMMAND": the memory arbiter: who holds, who waits, for what.
 * This file has those that only look: threads, tasks, pools, log, top.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "admin.h"
#include "asking.h"
#include "cleanup.h"
#include "fields.h"
#include "frames.h"
#include "jsonin.h"
#include "options.h"
#include "table.h"

/* ---- tables ---------------------------------------------------------------------------------- */

/* In the order in which they are shown. */
static const char *const states[] = {"BUFN",    "BUFN_WAIT", "BUFN_THROW", "SPLIT_THROW",
				     "BLOCKED", "ALLOC",     "ALLOC_FREE", "REMOVE_THROW",
				     "RUNNING", "UNKNOWN"};
#define N_STATES (sizeof(states) / sizeof(states[0]))

/* The orders of contexts; the first one: who waits first, the longest first. */
static const char *const order_names[] = {"state", "since", "held", "priority", "store"};
#define N_ORDERS (sizeof(order_names) / sizeof(order_names[0]))
/* The members that they are, of which the tool adds two itself. */
static const char *const order_members[N_ORDERS] = {"rank", "-since_ms", "-held", "-urgency",
						    "store"};
/* A row of a command's options: which order, a size_t at off. */
#define SORT_ROW(off)                                                                       \
	{                                                                                   \
		"sort", 's', "COLUMN",                                                      \
			"state (default: who waits first), since, held, priority or store", \
			OPTIONS_WORD, off, .words = order_names, .n_words = N_ORDERS,       \
	}

static const struct table_column context_columns[] = {
	{"CONTEXT", FIGURE_ID, "id"},
	{"STORE", TABLE_TRUNC, "store"},
	{"PID", FIGURE_COUNT, "pid"},
	{"KIND", TABLE_WIDE, "kind"},
	/* A waiting context counts as running, but says that it makes no progress. */
	{"STATE", TABLE_STATE, "[has wait?waits: {wait}|{state}]"},
	{"SINCE", FIGURE_LATELY, "since_ms"},
	{"PRIO", FIGURE_COUNT, "priority", "-"},
	{"POOL", TABLE_TRUNC, "pool", "-"},
	{"WANTS", FIGURE_SIZE | TABLE_UNLESS_0, "bytes", "-"},
	{"HELD", FIGURE_SIZE | TABLE_UNLESS_0, "held", "-"},
	{"NEED", FIGURE_SIZE | TABLE_UNLESS_0, "need", "-"},
	{"PASSED", FIGURE_COUNT | TABLE_WIDE, "passed"},
	{"TASK", FIGURE_ID | TABLE_WIDE, "task"},
	{"LABEL", TABLE_TRUNC, "label"},
	{"WHY", TABLE_WRAP | TABLE_WIDE, "reason"},
};

/* The contexts of a partition of the ARBITER document as a table. most: lines; 0 = all. Returns
 * the number of those that were left out. */
static size_t print_contexts(const struct admin *a, const struct json_object *partition,
			     size_t order, size_t most)
{
	const char *const by[] = {order_members[order], "-since_ms", "id", NULL};
	const struct json_object **items;
	size_t n = jsonin_count(partition, "contexts"), shown = most && most < n ? most : n;
	struct table t;

	for (size_t i = 0; i < n; i++) {
		struct json_object *c = jsonin_at(partition, "contexts", i);
		size_t rank = 0;

		while (rank < N_STATES && strcmp(states[rank], jsonin_text(c, "state")) != 0)
			rank++;
		jsonmake_u64(c, "rank", rank);
		/* Without an explicit priority it comes behind all that have one. */
		jsonmake_i64(c, "urgency",
			     jsonin_has(c, "priority") ? jsonin_i64(c, "priority") : INT64_MIN);
	}
	items = jsonin_sorted(partition, "contexts", by, &n);
	table_init(&t, a, context_columns, sizeof(context_columns) / sizeof(context_columns[0]));
	for (size_t i = 0; i < shown; i++)
		table_object(&t, items[i]);
	table_finish(&t);
	free(items);
	return n - shown;
}

static void show_level(struct table *t, size_t column, const struct json_object *p)
{
	static const char *const levels[] = {"none", "waiting", "rolled back"};
	uint64_t level = jsonin_u64(p, "level");

	if (level > 2)
		table_printf(t, column, "%" PRIu64, level);
	else
		table_text(t, column, levels[level]);
	if (level)
		table_color(t, column, level == 1 ? "yellow" : "red");
}

static const struct table_column pool_columns[] = {
	{"POOL", TABLE_TRUNC, "name"},
	{"ID", FIGURE_ID | TABLE_WIDE, "id"},
	{"OF", TABLE_TRUNC, "store", "all"},
	{"CAPACITY", FIGURE_SIZE, "capacity"},
	{"USED", FIGURE_SIZE, "used"},
	{"FILL", TABLE_FILL, "used/capacity"},
	{"RECLAIMABLE", FIGURE_SIZE | TABLE_UNLESS_0, "reclaimable", "-"},
	{"SPILLED", FIGURE_SIZE | TABLE_UNLESS_0 | TABLE_WIDE, "spilled", "-"},
	{"LEASED", FIGURE_SIZE | TABLE_UNLESS_0 | TABLE_WIDE, "leased", "-"},
	{"OBJECTS", FIGURE_SIZE | TABLE_UNLESS_0 | TABLE_WIDE, "objects", "-"},
	{"GHOSTS", FIGURE_SIZE | TABLE_UNLESS_0 | TABLE_WIDE, "ghosts", "-"},
	{"DRIFT", FIGURE_SIZE | TABLE_UNLESS_0 | TABLE_WIDE, "drift", "-"},
	{"WAITING", FIGURE_COUNT | TABLE_WARN, "waiting"},
	{"PRESSURE", .show = show_level},
	{"GRANTS", FIGURE_COUNT | TABLE_WIDE, "grants"},
	{"WAITS", FIGURE_COUNT | TABLE_WIDE, "waits"},
	{"RETRIES", FIGURE_COUNT | TABLE_WIDE, "retries"},
	{"SPLITS", FIGURE_COUNT | TABLE_WIDE, "splits"},
};

/* ---- threads ---- */

/* False: the arbiter is off there; said. */
static bool is_on(const struct json_object *p)
{
	if (jsonin_flag(p, "enabled"))
		return true;
	puts("the arbiter is off: arbiter { enabled = true } in shmstored.conf(5)");
	return false;
}

static void print_threads(const struct admin *a, const struct json_object *p)
{
	const size_t *order = a->own;

	if (!is_on(p))
		return;
	print_contexts(a, p, *order, 0);
	if (!jsonin_count(p, "contexts"))
		puts("no contexts: nobody has asked for memory");
}

static int cmd_arb_threads(struct admin *a, int argc, char **argv)
{
	static const struct options_row options[] = {SORT_ROW(0), {NULL}};
	size_t order = 0;

	OPTIONS_PARSE(a, argc, argv, "arb threads",
		      "Shows every context: a thread, or whatever else waits for memory.\v"
		      "WANTS is what it waits for, HELD what its task has in that pool, NEED what "
		      "its attempt takes in all, PASSED how often others were served before it. "
		      "CONTEXT and TASK are what cancel and inject take.",
		      .options = options, .own = &order);
	return ASKING_SHOW(a, SHMSTORE_QUERY_ARBITER, .partition = print_threads);
}

static const struct table_column columns[] = {
	{"TASK", FIGURE_ID, "id"},
	{"STORE", TABLE_TRUNC, "store"},
	{"PID", FIGURE_COUNT, "pid"},
	{"LABEL", TABLE_TRUNC, "label"},
	{"PRIO", FIGURE_COUNT, "priority", "-"},
	{"AGE", FIGURE_LONG, "begun_ms_ago"},
	{"HELD", FIGURE_SIZE, "held"},
	{"CONTEXTS", FIGURE_COUNT, "contexts"},
	{"STALLED", FIGURE_FLAG | TABLE_WARN, "stalled"},
	{"RETRIES", FIGURE_COUNT, "retries"},
	{"SPLITS", FIGURE_COUNT, "splits"},
	{"BLOCKED", FIGURE_MS, "blocked_ms"},
	{"LOST", FIGURE_MS, "lost_ms"},
};

static void print_tasks(const struct admin *a, const struct json_object *p)
{
	const bool *ended = a->own;

	if (is_on(p) && !TABLE_LIST(a, columns, p, *ended ? "ended" : "tasks"))
		puts("no tasks");
}

static int cmd_arb_tasks(struct admin *a, int argc, char **argv)
{
	static const struct options_row options[] = {
		{"ended", 'e', NULL,
		 "those among the last 1000 that have ended, and what they had waited and lost",
		 OPTIONS_FLAG},
		{NULL},
	};
	bool ended = false;

	OPTIONS_PARSE(
		a, argc, argv, "arb tasks",
		"Shows every task: what it holds, and what waiting and rolling back have cost it.\v"
		"STALLED: all its contexts wait. BLOCKED is time spent waiting, LOST time spent in "
		"attempts that were rolled back. PRIO \"-\": by arrival, behind all that have one.",
		.options = options, .own = &ended);
	return ASKING_SHOW(a, ended ? SHMSTORE_QUERY_ARB_LOG : SHMSTORE_QUERY_ARBITER,
			   .partition = print_tasks);
}

/* ---- pools ---- */

static void print_pools(const struct admin *a, const struct json_object *p)
{
	if (is_on(p))
		TABLE_LIST(a, pool_columns, p, "pools");
}

static int cmd_arb_pools(struct admin *a, int argc, char **argv)
{
	OPTIONS_PARSE(
		a, argc, argv, "arb pools",
		"Shows every pool: the partition's, and the private budgets of processes.\v"
		"USED is all that is booked; of it RECLAIMABLE can be had by evicting, LEASED is "
		"lent to stores ahead of their need and taken back at once. OBJECTS, GHOSTS "
		"(deleted, still mapped) and DRIFT (files that are not the partition's) are what "
		"the kernel says. PRESSURE: does anybody wait, was anybody rolled back lately.");
	return ASKING_SHOW(a, SHMSTORE_QUERY_ARBITER, .partition = print_pools);
}

/* ---- log ------------------------------------------------------------------------------------- */

/*
 * The arbiter's last transitions as CSV (RFC 4180, but lines end in a newline only): first the
 * columns that spark-rapids' log has, so that its readers' tools work, then ours. Times are the
 * wall clock's, made of the daemon's, which counts from the boot.
 */

struct log {
	uint64_t since; /* number after which transitions are wanted */
	uint64_t most;  /* the last so many; 0 = all */
};

static int64_t clock_ms(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A comma and a cell, quoted where it must be. Characters that could upset a terminal are escaped.
 */
static void print_cell(const char *text)
{
	_free_ char *shown = figure_escaped(text, strlen(text));

	putchar(',');
	if (!strpbrk(shown, ",\"")) {
		fputs(shown, stdout);
	} else {
		putchar('"');
		for (const char *p = shown; *p; p++) {
			if (*p == '"')
				putchar('"');
			putchar(*p);
		}
		putchar('"');
	}
}

static void print_time(uint64_t boot_ms)
{
	int64_t ms = (int64_t)boot_ms + clock_ms(CLOCK_REALTIME) - clock_ms(CLOCK_BOOTTIME);
	time_t seconds = (time_t)(ms / 1000);
	struct tm tm;
	char text[32];

	gmtime_r(&seconds, &tm);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	printf("%s.%03dZ", text, (int)(ms % 1000));
}

static void print_id(const struct json_object *o, const char *member)
{
	putchar(',');
	if (jsonin_u64(o, member))
		fputs(human_id(jsonin_u64(o, member)), stdout);
}

static void print_line(const char *partition, const struct json_object *o)
{
	print_time(jsonin_u64(o, "time_ms"));
	print_cell(jsonin_text(o, "op"));
	print_id(o, "by");
	print_id(o, "context");
	print_id(o, "task");
	print_cell(jsonin_text(o, "from"));
	print_cell(jsonin_text(o, "to"));
	print_cell(jsonin_text(o, "note"));
	printf(",%" PRIu64, jsonin_u64(o, "number"));
	print_cell(jsonin_text(o, "store"));
	print_cell(jsonin_text(o, "outcome"));
	print_cell(jsonin_text(o, "pool"));
	printf(",%" PRIu64, jsonin_u64(o, "bytes"));
	print_cell(partition);
	putchar('\n');
}

/* The first transition of a partition that is wanted. */
static size_t first_wanted(const struct log *l, const struct json_object *p)
{
	size_t n = jsonin_count(p, "log"), first = 0;

	while (first < n && jsonin_u64(jsonin_at(p, "log", first), "number") <= l->since)
		first++;
	return l->most && n - first > l->most ? n - (size_t)l->most : first;
}

static void print_csv(const struct admin *a, const struct json_object *document)
{
	puts("time,op,current thread,op thread,op "
	     "task,from,to,notes,number,store,outcome,pool,bytes,partition");
	for (size_t i = 0; i < jsonin_count(document, "partitions"); i++) {
		const struct json_object *p = jsonin_at(document, "partitions", i);

		for (size_t t = first_wanted(a->own, p); t < jsonin_count(p, "log"); t++)
			print_line(jsonin_text(p, "partition"), jsonin_at(p, "log", t));
	}
}

static int cmd_arb_log(struct admin *a, int argc, char **argv)
{
	typedef struct log OF;
	static const struct options_row options[] = {
		{"since", 0, "NUMBER", "only transitions after the one of that number",
		 OPTIONS_NUMBER, offsetof(OF, since)},
		{"count", 'n', "N", "only the last N", OPTIONS_NUMBER, offsetof(OF, most), 1},
		{NULL},
	};
	struct log l = {0};

	OPTIONS_PARSE(
		a, argc, argv, "arb log",
		"Prints the arbiter's last transitions, oldest first, as CSV.\v"
		"The daemon keeps the last 1000. \"current thread\" is whose message it was, \"op "
		"thread\" whom it moved. With --json the daemon's document comes as it is, whole.",
		.options = options, .own = &l);
	return ASKING_SHOW(a, SHMSTORE_QUERY_ARB_LOG, .document = print_csv);
}

/* ---- top ------------------------------------------------------------------------------------- */

/*
 * The arbiter live: pools, what happened since the last frame, and every context by its state. A
 * frame is one question to the daemon. On a terminal frames overwrite each other; elsewhere they
 * follow one another; with --json each is the daemon's document on a line.
 */
struct top {
	struct admin *admin;
	size_t order; /* of order_names */
	struct frames frames;
	struct shmstore_client *client;
	struct json_object *before, *now; /* documents; before NULL: this is the first */
	int64_t before_ns, now_ns;
};

/* ---- a frame ---- */

/* The partition of that path in the frame before; NULL. */
static const struct json_object *same_before(const struct top *top, const char *path)
{
	for (size_t i = 0; i < jsonin_count(top->before, "partitions"); i++) {
		const struct json_object *p = jsonin_at(top->before, "partitions", i);

		if (strcmp(jsonin_text(p, "partition"), path) == 0)
			return p;
	}
	return NULL;
}

static void print_states(const struct json_object *p)
{
	static const char *const names[] = {"RUNNING", "ALLOC", "BLOCKED", "BUFN_WAIT", "BUFN"};
	uint64_t n[sizeof(names) / sizeof(names[0])] = {0}, n_other = 0;

	for (size_t i = 0; i < jsonin_count(p, "contexts"); i++) {
		const char *state = jsonin_text(jsonin_at(p, "contexts", i), "state");
		size_t s = 0;

		if (strcmp(state, "ALLOC_FREE") == 0)
			state = "ALLOC";
		while (s < sizeof(names) / sizeof(names[0]) && strcmp(names[s], state) != 0)
			s++;
		if (s < sizeof(names) / sizeof(names[0]))
			n[s]++;
		else
			n_other++;
	}
	printf("%s, ", human_count(jsonin_count(p, "tasks"), "task"));
	printf("%s:", human_count(jsonin_count(p, "contexts"), "context"));
	for (size_t s = 0; s < sizeof(names) / sizeof(names[0]); s++)
		printf("%s %" PRIu64 " %s", s ? "," : "", n[s], names[s]);
	if (n_other)
		printf(", %" PRIu64 " others", n_other);
	putchar('\n');
}

/* Prints the daemon's totals, each with its rate since the last frame if there was one. */
static void print_totals(const struct top *top, const struct json_object *p)
{
	static const struct {
		const char *member, *text;
	} totals[] = {
		{"messages", "messages"},    {"retries", "retries"}, {"splits", "splits"},
		{"nomem", "without memory"}, {"toobig", "too big"},  {"timeouts", "timeouts"},
		{"canceled", "canceled"},    {"removed", "removed"},
	};
	const struct json_object *before = same_before(top, jsonin_text(p, "partition"));
	const struct json_object *now_totals = jsonin_object(p, "totals"),
				 *before_totals = jsonin_object(before, "totals");
	double seconds = (double)(top->now_ns - top->before_ns) / 1e9;
	bool first = true;

	for (size_t i = 0; i < sizeof(totals) / sizeof(totals[0]); i++) {
		uint64_t n = jsonin_u64(now_totals, totals[i].member),
			 was = jsonin_u64(before_totals, totals[i].member);

		if (i && !n) /* what never happened is not worth a word */
			continue;
		printf("%s%s %" PRIu64, first ? "" : ", ", totals[i].text, n);
		if (before_totals && n >= was && seconds > 0)
			printf(" (%.0f/s)", (double)(n - was) / seconds);
		first = false;
	}
	putchar('\n');
}

/* Lines that are left for the contexts of one partition; 0 = all. */
static size_t room(const struct top *top, const struct json_object *p, size_t n_partitions)
{
	size_t used = 5 + jsonin_count(p, "pools");

	if (!top->frames.live)
		return 0;
	if (n_partitions > 1 || top->frames.rows <= used + 2)
		return n_partitions > 1 ? 10 : 1;
	return top->frames.rows - used - 2;
}

static void print_partition(const struct top *top, const struct json_object *p, size_t n_partitions,
			    bool first)
{
	table_heading(jsonin_text(p, "partition"), first);
	if (!jsonin_flag(p, "enabled")) {
		puts("the arbiter is off");
		return;
	}
	print_states(p);
	print_totals(top, p);
	TABLE_LIST(top->admin, pool_columns, p, "pools");
	size_t left = print_contexts(top->admin, p, top->order, room(top, p, n_partitions));
	if (left)
		printf("... and %zu more\n", left);
	else if (!jsonin_count(p, "contexts"))
		puts("no contexts");
}

static void print_text(struct top *top)
{
	size_t n = jsonin_count(top->now, "partitions");

	top->admin->narrow = top->frames.live && top->frames.columns < 150;
	printf("%s  by %s%s\n", frames_clock(time(NULL)), order_names[top->order],
	       top->frames.keyboard ? "   (q quits, s sorts)" : "");
	for (size_t i = 0; i < n; i++)
		print_partition(top, jsonin_at(top->now, "partitions", i), n, i == 0);
	if (!top->frames.live)
		putchar('\n');
}

/* ---- the loop ---- */

/* Asks for the next document. As asking_ask(). */
static int take(void *arg)
{
	struct top *top = arg;
	struct json_object *now;
	int r = asking_ask(top->client, SHMSTORE_QUERY_ARBITER, asking_partition(top->admin), &now);

	if (r < 0)
		return r;
	jsonin_free(top->before);
	top->before = top->now;
	top->before_ns = top->now_ns;
	top->now = now;
	top->now_ns = frames_now();
	return 0;
}

static bool show(void *arg)
{
	struct top *top = arg;

	if (!top->admin->json) {
		print_text(top);
		return true;
	}
	json_print_line(top->now); /* frees it */
	top->now = NULL;
	return true;
}

static int cmd_arb_top(struct admin *a, int argc, char **argv)
{
	typedef struct top OF;
	static const struct options_row options[] = {
		FRAMES_OPTIONS("1"),
		SORT_ROW(offsetof(OF, order)),
		{NULL},
	};
	struct top top = {
		.admin = a,
		.frames = {take, show, &top, &top.order, N_ORDERS, .interval = 1},
	};

	OPTIONS_PARSE(a, argc, argv, "arb top",
		      "Shows the arbiter live: pools, and every context by its state. Keys: q "
		      "quits, s sorts by the next column.\v"
		      "Columns are those of arb pools and arb threads; a narrow terminal leaves "
		      "some out. With --json, one document per interval and line. Without a "
		      "terminal, frames follow one another.",
		      .options = options, .own = &top);
	top.client = asking_open(a);
	asking_check(top.client, asking_partition(a), frames_run(&top.frames, !a->json));
	jsonin_free(top.before);
	jsonin_free(top.now);
	shmstore_client_free(top.client);
	return ADMIN_OK;
}

/* ---- the subcommands ---- */

static const struct admin_command subcommands[] = {
	{"top", "", "who holds and who waits, live", cmd_arb_top},
	{"threads", "", "every context, its state, what it wants", cmd_arb_threads},
	{"tasks", "", "every task, what it holds, what it lost", cmd_arb_tasks},
	{"pools", "", "every pool, how full it is", cmd_arb_pools},
	{"log", "", "the last transitions, as CSV", cmd_arb_log},
	{"inject", "KIND ID", "make the next reserves of a context or task fail", cmd_arb_inject},
	{"cancel", "ID...", "end what a context or task waits for", cmd_arb_cancel},
	{"set", "KNOB VALUE", "change how the arbiter decides, until the daemon ends", cmd_arb_set},
	{NULL, NULL, NULL, NULL},
};

int cmd_arb(struct admin *a, int argc, char **argv)
{
	static const struct commands commands = {
		.list = subcommands,
		.of = "arb",
		.help = "Looks into the daemon's memory arbiter, which gives tasks of all "
			"processes the memory of a partition.\v",
		.tail = "\"" ADMIN_NAME " help arb SUBCOMMAND\" explains one. States and outcomes "
			"are explained in " ADMIN_NAME "(1), and drawn in docs/arbiter.md.",
	};

	return commands_read(&commands, a, argc, argv);
}
