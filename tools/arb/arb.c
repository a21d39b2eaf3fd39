/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_arb.c: "shmstore-admin arb SUBCOMMAND": the memory arbiter: who holds, who waits, for what.
 * This file has the three that only look: threads, tasks, pools.
 */
#include "arb.h"

#include <stdio.h>

#include "asking.h"
#include "commands.h"
#include "jsonin.h"
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
