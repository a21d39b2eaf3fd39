/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_preempt.c: "shmstore-admin preempt": which processes were asked to stop, or made to, lately,
 * because memory was short; with --dry-run whom it would take, in which order, why, and what that
 * would free. It changes nothing.
 */
#include "asking.h"
#include "jsonin.h"
#include "options.h"
#include "table.h"

static const struct options_row options[] = {
	{"dry-run", 0, NULL,
	 "Show whom it would take, in this order, why, and what that would free", OPTIONS_FLAG},
	{NULL},
};

static void show_order(struct table *t, size_t column, const struct json_object *o)
{
	(void)o;
	table_count(t, column, t->n_lines);
}

static const struct table_column plan_columns[] = {
	{"ORDER", TABLE_RIGHT, .show = show_order},
	{"WHEN", 0, "[now?now|later]"},
	{"PID", FIGURE_COUNT, "pid"},
	{"UID", FIGURE_COUNT, "uid"},
	{"TASKS", FIGURE_COUNT, "tasks"},
	{"LEVEL", FIGURE_TEXT, "level"},
	{"FREES", FIGURE_SIZE, "bytes"},
	{"RETRY", FIGURE_FLAG, "retry"},
	{"MOVES", 0, "{actors_moved} of {actors} actors"},
	{"WHY", TABLE_WRAP, "why"},
};
static const struct table_column recent_columns[] = {
	{"NUMBER", FIGURE_COUNT, "number"}, {"AGO", FIGURE_AGO, "time"},
	{"STEP", FIGURE_TEXT, "step"},      {"PID", FIGURE_COUNT, "pid"},
	{"UID", FIGURE_COUNT, "uid"},       {"TASKS", FIGURE_COUNT, "tasks"},
	{"LEVEL", FIGURE_TEXT, "level"},    {"BYTES", FIGURE_SIZE, "bytes"},
	{"WHY", TABLE_WRAP, "why"},
};

static void print_plan(const struct admin *a, const struct json_object *p)
{
	figure_print(p, false,
		     "policy {policy}[enabled?| (switched off)]; {need:size} are to be freed now; "
		     "{never} processes run a task that is "
		     "NEVER, {foreign} are of users whom the daemon may not signal, {kept} have "
		     "actors for which no place has memory (another partition, another daemon)\n");
	if (jsonin_count(p, "plan"))
		TABLE_LIST(a, plan_columns, p, "plan");
}

static void print_preempt(const struct admin *a, const struct json_object *g)
{
	const bool *dry_run = a->own;
	const struct json_object *p = jsonin_object(g, "preemption");

	if (!p)
		return;
	if (*dry_run)
		print_plan(a, p);
	else if (jsonin_count(p, "recent"))
		TABLE_LIST(a, recent_columns, p, "recent");
}

int cmd_preempt(struct admin *a, int argc, char **argv)
{
	bool dry_run = false;
	const struct asking_view view = {
		.watched = "gate",
		.unless = "preempt: the daemon does not watch the host's memory, so it preempts "
			  "nobody",
		.document = print_preempt};

	OPTIONS_PARSE(
		a, argc, argv, "preempt",
		"Shows which processes were asked to stop, or made to, because memory was short.\v"
		"With --dry-run, which ones it would take: NOW for memory as it is, LATER if it "
		"grows on, wave after wave. Nothing is done to anybody.",
		.options = options, .own = &dry_run);
	a->partition = ""; /* all: it is of the host */
	return asking_show(a, SHMSTORE_QUERY_GATE, &view);
}
