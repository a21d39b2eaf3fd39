/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_arb.c: "shmstore-admin arb SUBCOMMAND": the memory arbiter: who holds, who waits, for what.
 * This file has the three that only look: threads, tasks, pools.
 */
#include "arb.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "asking.h"
#include "cleanup.h"
#include "human.h"
#include "jsonin.h"
#include "jsonmake.h"
#include "options.h"
#include "table.h"

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
	arb_print_contexts(a, p, *order, 0, false);
	if (!jsonin_count(p, "contexts"))
		puts("no contexts: nobody has asked for memory");
}

static int cmd_arb_threads(struct admin *a, int argc, char **argv)
{
	static const struct options_row options[] = {ARB_SORT_ROW(0), {NULL}};
	size_t order = 0;
	const struct asking_view view = {.partition = print_threads};

	OPTIONS_PARSE(a, argc, argv, "arb threads",
		      "Shows every context: a thread, or whatever else waits for memory.\v"
		      "WANTS is what it waits for, HELD what its task has in that pool, NEED what "
		      "its attempt takes in all, PASSED how often others were served before it. "
		      "CONTEXT and TASK are what cancel and inject take.",
		      .options = options, .own = &order);
	return asking_show(a, SHMSTORE_QUERY_ARBITER, &view);
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
	const struct asking_view view = {.partition = print_tasks};

	OPTIONS_PARSE(
		a, argc, argv, "arb tasks",
		"Shows every task: what it holds, and what waiting and rolling back have cost it.\v"
		"STALLED: all its contexts wait. BLOCKED is time spent waiting, LOST time spent in "
		"attempts that were rolled back. PRIO \"-\": by arrival, behind all that have one.",
		.options = options, .own = &ended);
	return asking_show(a, ended ? SHMSTORE_QUERY_ARB_LOG : SHMSTORE_QUERY_ARBITER, &view);
}

/* ---- pools ---- */

static void print_pools(const struct admin *a, const struct json_object *p)
{
	if (is_on(p))
		arb_print_pools(a, p, false);
}

static int cmd_arb_pools(struct admin *a, int argc, char **argv)
{
	const struct asking_view view = {.partition = print_pools};

	OPTIONS_PARSE(
		a, argc, argv, "arb pools",
		"Shows every pool: the partition's, and the private budgets of processes.\v"
		"USED is all that is booked; of it RECLAIMABLE can be had by evicting, LEASED is "
		"lent to stores ahead of their need and taken back at once. OBJECTS, GHOSTS "
		"(deleted, still mapped) and DRIFT (files that are not the partition's) are what "
		"the kernel says. PRESSURE: does anybody wait, was anybody rolled back lately.");
	return asking_show(a, SHMSTORE_QUERY_ARBITER, &view);
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
	const struct asking_view view = {.document = print_csv};

	OPTIONS_PARSE(
		a, argc, argv, "arb log",
		"Prints the arbiter's last transitions, oldest first, as CSV.\v"
		"The daemon keeps the last 1000. \"current thread\" is whose message it was, \"op "
		"thread\" whom it moved. With --json the daemon's document comes as it is, whole.",
		.options = options, .own = &l);
	return asking_show(a, SHMSTORE_QUERY_ARB_LOG, &view);
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

/* ---- tables ---------------------------------------------------------------------------------- */

/* In the order in which they are shown. */
static const char *const states[] = {"BUFN",    "BUFN_WAIT", "BUFN_THROW", "SPLIT_THROW",
				     "BLOCKED", "ALLOC",     "ALLOC_FREE", "REMOVE_THROW",
				     "RUNNING", "UNKNOWN"};
#define N_STATES (sizeof(states) / sizeof(states[0]))

static uint64_t rank_of(const struct json_object *context)
{
	const char *name = jsonin_text(context, "state");
	size_t i = 0;

	while (i < N_STATES && strcmp(states[i], name) != 0)
		i++;
	return i;
}

const char *const arb_order_names[ARB_N_ORDERS] = {"state", "since", "held", "priority", "store"};
/* The members that they are, of which the tool adds two itself. */
static const char *const order_members[ARB_N_ORDERS] = {"rank", "-since_ms", "-held", "-urgency",
							"store"};

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

size_t arb_print_contexts(const struct admin *a, const struct json_object *partition, size_t order,
			  size_t most, bool narrow)
{
	const char *const by[] = {order_members[order], "-since_ms", "id", NULL};
	const struct json_object **items;
	size_t n = jsonin_count(partition, "contexts"), shown = most && most < n ? most : n;
	struct table t;

	for (size_t i = 0; i < n; i++) {
		struct json_object *c = jsonin_at(partition, "contexts", i);

		jsonmake_u64(c, "rank", rank_of(c));
		/* Without an explicit priority it comes behind all that have one. */
		jsonmake_i64(c, "urgency",
			     jsonin_has(c, "priority") ? jsonin_i64(c, "priority") : INT64_MIN);
	}
	items = jsonin_sorted(partition, "contexts", by, &n);
	table_init(&t, a, context_columns, sizeof(context_columns) / sizeof(context_columns[0]));
	if (narrow)
		table_hide_wide(&t);
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

void arb_print_pools(const struct admin *a, const struct json_object *partition, bool narrow)
{
	struct table t;

	table_init(&t, a, pool_columns, sizeof(pool_columns) / sizeof(pool_columns[0]));
	if (narrow)
		table_hide_wide(&t);
	for (size_t i = 0; i < jsonin_count(partition, "pools"); i++)
		table_object(&t, jsonin_at(partition, "pools", i));
	table_finish(&t);
}
