/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_gate.c: "shmstore-admin gate": whether more work may begin on this host, since when, by which
 * thresholds, and who waits. */
#include <string.h>

#include "asking.h"
#include "jsonin.h"
#include "options.h"
#include "table.h"

static void show_state(struct table *t, size_t column, const struct json_object *g)
{
	table_text(t, column, jsonin_text(g, "state"));
	table_color(t, column, strcmp(jsonin_text(g, "state"), "open") == 0 ? "green" : "yellow");
}

static const struct table_column columns[] = {
	{"GATE", .show = show_state},
	{"FOR", FIGURE_TIME, "since_seconds"},
	{"USED", FIGURE_SIZE, "used", "unknown"},
	{"LOW", FIGURE_SIZE, "low", "unknown"},
	{"HIGH", FIGURE_SIZE, "high", "unknown"},
	{"KILL", FIGURE_SIZE, "kill", "unknown"},
	{"TOTAL", FIGURE_SIZE, "total", "unknown"},
	{"QUOTA", FIGURE_COUNT, "quota"},
	{"FLIPS", FIGURE_COUNT, "flips"},
};

static const struct table_column line_columns[] = {
	{"RUNNING", FIGURE_COUNT, "running"},
	{"WAITING", FIGURE_COUNT, "waiting"},
	{"OLDEST", TABLE_RIGHT, "[waiting?{oldest_wait_seconds:time}|-]"},
	{"RESERVED", FIGURE_SIZE, "reserved"},
	{"OF", FIGURE_SIZE, "cap"},
	{"ADMITTED", FIGURE_COUNT, "admitted"},
	{"REFUSED", FIGURE_COUNT, "refused"},
	{"TIMED OUT", FIGURE_COUNT, "timed_out"},
	{"TOO BIG", FIGURE_COUNT, "too_big"},
};

static const struct table_column task_columns[] = {
	{"TASK", FIGURE_COUNT, "task"},
	{"STATE", FIGURE_TEXT, "state"},
	{"FOR", FIGURE_TIME, "since_seconds"},
	{"PID", FIGURE_COUNT, "pid"},
	{"UID", FIGURE_COUNT, "uid"},
	{"LEVEL", FIGURE_TEXT, "level"},
	{"FUNCTION", FIGURE_TEXT, "function", "-"},
	{"EXPECTED", FIGURE_SIZE, "reserve"},
	{"HAS", FIGURE_SIZE, "now", ""},
};

static void print_gate(const struct admin *a, const struct json_object *g)
{
	TABLE_ONE(a, columns, g);
	table_heading("Tasks", false);
	TABLE_ONE(a, line_columns, g);
	if (!jsonin_count(g, "tasks"))
		return;
	table_heading("By name", false);
	TABLE_LIST(a, task_columns, g, "tasks");
}

int cmd_gate(struct admin *a, int argc, char **argv)
{
	const struct asking_view view = {
		.watched = "gate",
		.unless = "gate: the daemon does not watch the host's memory, so there is no gate",
		.document = print_gate};

	OPTIONS_PARSE(
		a, argc, argv, "gate",
		"Shows whether more work may begin on this host, and by what that is decided.\v"
		"The gate closes where USED, or the 95th percentile of the last samples, reaches "
		"HIGH, and opens after several samples in a row at LOW or below. QUOTA is how many "
		"tasks may begin within an interval. RESERVED is what is expected of the tasks "
		"that were let in, OF how much that may be now.");
	a->partition = ""; /* all: it is of the host */
	return asking_show(a, SHMSTORE_QUERY_GATE, &view);
}
