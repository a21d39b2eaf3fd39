/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_gate.c: "shmstore-admin gate": whether more work may begin on this host, since when, by which thresholds, and who waits. */
#include <inttypes.h>
#include <string.h>

#include "asking.h"
#include "human.h"
#include "jsonin.h"
#include "message.h"
#include "options.h"
#include "table.h"

static const struct table_column columns[] = {
	{"GATE", 0},
	{"FOR", TABLE_RIGHT},
	{"USED", TABLE_RIGHT},
	{"LOW", TABLE_RIGHT},
	{"HIGH", TABLE_RIGHT},
	{"KILL", TABLE_RIGHT},
	{"TOTAL", TABLE_RIGHT},
	{"QUOTA", TABLE_RIGHT},
	{"FLIPS", TABLE_RIGHT},
};

static void print_known(struct table *t, size_t column, const struct json_object *o, const char *member)
{
	if (jsonin_has(o, member))
		table_size(t, column, jsonin_u64(o, member));
	else
		table_text(t, column, "unknown");
}

static const struct table_column line_columns[] = {
	{"RUNNING", TABLE_RIGHT},  {"WAITING", TABLE_RIGHT},   {"OLDEST", TABLE_RIGHT},
	{"RESERVED", TABLE_RIGHT}, {"OF", TABLE_RIGHT},        {"ADMITTED", TABLE_RIGHT},
	{"REFUSED", TABLE_RIGHT},  {"TIMED OUT", TABLE_RIGHT}, {"TOO BIG", TABLE_RIGHT},
};

static const struct table_column task_columns[] = {
	{"TASK", TABLE_RIGHT}, {"STATE", 0},    {"FOR", TABLE_RIGHT},      {"PID", TABLE_RIGHT}, {"UID", TABLE_RIGHT},
	{"LEVEL", 0},          {"FUNCTION", 0}, {"EXPECTED", TABLE_RIGHT}, {"HAS", TABLE_RIGHT},
};

/* Prints the gate's counts of tasks as one line. */
static void print_line(const struct json_object *g, struct admin *a)
{
	uint64_t waiting = jsonin_u64(g, "waiting");
	char text[HUMAN_SIZE];
	struct table t;

	table_heading("Tasks", false);
	table_init(&t, a, line_columns, sizeof(line_columns) / sizeof(line_columns[0]));
	table_row(&t);
	table_count(&t, 0, jsonin_u64(g, "running"));
	table_count(&t, 1, waiting);
	table_text(&t, 2, waiting ? human_duration(jsonin_real(g, "oldest_wait_seconds"), text) : "-");
	table_size(&t, 3, jsonin_u64(g, "reserved"));
	table_size(&t, 4, jsonin_u64(g, "cap"));
	table_count(&t, 5, jsonin_u64(g, "admitted"));
	table_count(&t, 6, jsonin_u64(g, "refused"));
	table_count(&t, 7, jsonin_u64(g, "timed_out"));
	table_count(&t, 8, jsonin_u64(g, "too_big"));
	table_finish(&t);
}

static void print_tasks(const struct json_object *g, struct admin *a)
{
	size_t n = jsonin_count(g, "tasks");
	char text[HUMAN_SIZE];
	struct table t;

	if (!n)
		return;
	table_heading("By name", false);
	table_init(&t, a, task_columns, sizeof(task_columns) / sizeof(task_columns[0]));
	for (size_t i = 0; i < n; i++) {
		const struct json_object *k = jsonin_at(g, "tasks", i);

		table_row(&t);
		table_printf(&t, 0, "%" PRIu64, jsonin_u64(k, "task"));
		table_text(&t, 1, jsonin_text(k, "state"));
		table_text(&t, 2, human_duration(jsonin_real(k, "since_seconds"), text));
		table_printf(&t, 3, "%" PRId64, jsonin_i64(k, "pid"));
		table_printf(&t, 4, "%" PRIu64, jsonin_u64(k, "uid"));
		table_text(&t, 5, jsonin_text(k, "level"));
		table_text(&t, 6, jsonin_has(k, "function") ? jsonin_text(k, "function") : "-");
		table_size(&t, 7, jsonin_u64(k, "reserve"));
		if (jsonin_has(k, "now"))
			table_size(&t, 8, jsonin_u64(k, "now"));
	}
	table_finish(&t);
}

static void print_gate(const struct json_object *document, void *arg)
{
	const struct json_object *g = jsonin_object(document, "gate");
	const char *state = jsonin_text(g, "state");
	char text[HUMAN_SIZE];
	struct table t;

	if (!jsonin_flag(g, "enabled"))
		return;
	table_init(&t, arg, columns, sizeof(columns) / sizeof(columns[0]));
	table_row(&t);
	table_text(&t, 0, state);
	table_color(&t, 0, strcmp(state, "open") == 0 ? "green" : "yellow");
	table_text(&t, 1, human_duration(jsonin_real(g, "since_seconds"), text));
	print_known(&t, 2, g, "used");
	print_known(&t, 3, g, "low");
	print_known(&t, 4, g, "high");
	print_known(&t, 5, g, "kill");
	print_known(&t, 6, g, "total");
	table_count(&t, 7, jsonin_u64(g, "quota"));
	table_count(&t, 8, jsonin_u64(g, "flips"));
	table_finish(&t);
	print_line(g, arg);
	print_tasks(g, arg);
}

static int judge(const struct json_object *document)
{
	if (jsonin_flag(jsonin_object(document, "gate"), "enabled"))
		return ADMIN_OK;
	message_say("gate: the daemon does not watch the host's memory, so there is no gate");
	message_hint("set pressure { enabled = yes } in shmstored.conf, and start it again");
	return ADMIN_FAILED;
}

int cmd_gate(struct admin *a, int argc, char **argv)
{
	static const struct argp argp = OPTIONS_ARGP(
		NULL, options_common, "gate",
		"Shows whether more work may begin on this host, and by what that is decided.\v"
		"The gate closes where USED, or the 95th percentile of the last samples, reaches HIGH, and opens after "
		"several samples in a row at LOW or below. QUOTA is how many tasks may begin within an interval. "
		"RESERVED is what is expected of the tasks that were let in, OF how much that may be now.");
	struct command_line line = {.admin = a};
	const struct asking_view view = {.judge = judge, .document = print_gate, .arg = a};

	options_parse(&argp, &line, argc, argv);
	a->partition = ""; /* all: it is of the host */
	return asking_show(a, SHMSTORE_QUERY_GATE, &view);
}
