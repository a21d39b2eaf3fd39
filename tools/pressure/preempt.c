/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_preempt.c: "shmstore-admin preempt": which processes were asked to stop, or made to, lately, because memory was short; with --dry-run whom it would take, in which
 * order, why, and what that would free. It changes nothing.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "asking.h"
#include "human.h"
#include "jsonin.h"
#include "message.h"
#include "options.h"
#include "table.h"

enum {
	KEY_DRY_RUN = 0x100,
};

static const struct argp_option option_list[] = {
	{"dry-run", KEY_DRY_RUN, NULL, 0, "Show whom it would take, in this order, why, and what that would free", 0},
	{NULL, 0, NULL, 0, NULL, 0},
};

static const struct table_column plan_columns[] = {
	{"ORDER", TABLE_RIGHT}, {"WHEN", 0},         {"PID", TABLE_RIGHT},   {"UID", TABLE_RIGHT},
	{"TASKS", TABLE_RIGHT}, {"LEVEL", 0},        {"FREES", TABLE_RIGHT}, {"RETRY", 0},
	{"MOVES", 0},           {"WHY", TABLE_WRAP},
};
static const struct table_column recent_columns[] = {
	{"NUMBER", TABLE_RIGHT}, {"AGO", TABLE_RIGHT},   {"STEP", 0},  {"PID", TABLE_RIGHT},
	{"UID", TABLE_RIGHT},    {"TASKS", TABLE_RIGHT}, {"LEVEL", 0}, {"BYTES", TABLE_RIGHT},
	{"WHY", TABLE_WRAP},
};

struct preempt_options {
	struct admin *admin;
	bool dry_run;
};

static error_t option(int key, char *arg, struct argp_state *state)
{
	struct command_line *line = state->input;
	struct preempt_options *o = line->own;

	if (key != KEY_DRY_RUN)
		return options_common(key, arg, state);
	o->dry_run = true;
	return 0;
}

static void print_plan(const struct json_object *p, const struct admin *a)
{
	size_t n = jsonin_count(p, "plan");
	char need[HUMAN_SIZE];
	struct table t;

	printf("policy %s%s; %s are to be freed now; %" PRIu64 " processes run a task that is NEVER, %" PRIu64
	       " are of users whom the daemon may not signal, %" PRIu64
	       " have actors for which no place has memory (another partition, another daemon)\n",
	       jsonin_text(p, "policy"), jsonin_flag(p, "enabled") ? "" : " (switched off)",
	       human_size(jsonin_u64(p, "need"), need), jsonin_u64(p, "never"), jsonin_u64(p, "foreign"),
	       jsonin_u64(p, "kept"));
	if (!n)
		return;
	table_init(&t, a, plan_columns, sizeof(plan_columns) / sizeof(plan_columns[0]));
	for (size_t i = 0; i < n; i++) {
		const struct json_object *v = jsonin_at(p, "plan", i);

		table_row(&t);
		table_count(&t, 0, i + 1);
		table_text(&t, 1, jsonin_flag(v, "now") ? "now" : "later");
		table_printf(&t, 2, "%" PRId64, jsonin_i64(v, "pid"));
		table_printf(&t, 3, "%" PRIu64, jsonin_u64(v, "uid"));
		table_count(&t, 4, jsonin_u64(v, "tasks"));
		table_text(&t, 5, jsonin_text(v, "level"));
		table_size(&t, 6, jsonin_u64(v, "bytes"));
		table_text(&t, 7, jsonin_flag(v, "retry") ? "yes" : "no");
		table_printf(&t, 8, "%" PRIu64 " of %" PRIu64 " actors", jsonin_u64(v, "actors_moved"),
			     jsonin_u64(v, "actors"));
		table_text(&t, 9, jsonin_text(v, "why"));
	}
	table_finish(&t);
}

static void print_recent(const struct json_object *p, const struct admin *a)
{
	size_t n = jsonin_count(p, "recent");
	struct table t;

	if (!n)
		return;
	table_init(&t, a, recent_columns, sizeof(recent_columns) / sizeof(recent_columns[0]));
	for (size_t i = 0; i < n; i++) {
		const struct json_object *r = jsonin_at(p, "recent", i);

		table_row(&t);
		table_count(&t, 0, jsonin_u64(r, "number"));
		table_age(&t, 1, (int64_t)(jsonin_real(r, "time") * 1e9));
		table_text(&t, 2, jsonin_text(r, "step"));
		table_printf(&t, 3, "%" PRId64, jsonin_i64(r, "pid"));
		table_printf(&t, 4, "%" PRIu64, jsonin_u64(r, "uid"));
		table_count(&t, 5, jsonin_u64(r, "tasks"));
		table_text(&t, 6, jsonin_text(r, "level"));
		table_size(&t, 7, jsonin_u64(r, "bytes"));
		table_text(&t, 8, jsonin_text(r, "why"));
	}
	table_finish(&t);
}

static void print_preempt(const struct json_object *document, void *arg)
{
	const struct command_line *line = arg;
	const struct preempt_options *o = line->own;
	const struct json_object *p = jsonin_object(jsonin_object(document, "gate"), "preemption");

	if (!p)
		return;
	if (o->dry_run)
		print_plan(p, line->admin);
	else
		print_recent(p, line->admin);
}

static int judge(const struct json_object *document)
{
	if (jsonin_flag(jsonin_object(document, "gate"), "enabled"))
		return ADMIN_OK;
	message_say("preempt: the daemon does not watch the host's memory, so it preempts nobody");
	message_hint("set pressure { enabled = yes } in shmstored.conf, and start it again");
	return ADMIN_FAILED;
}

int cmd_preempt(struct admin *a, int argc, char **argv)
{
	static const struct argp argp =
		OPTIONS_ARGP(option_list, option, "preempt",
			     "Shows which processes were asked to stop, or made to, because memory was short.\v"
			     "With --dry-run, which ones it would take: NOW for memory as it is, LATER if it grows on, "
			     "wave after wave. "
			     "Nothing is done to anybody.");
	struct preempt_options own = {.admin = a};
	struct command_line line = {.admin = a, .own = &own};
	const struct asking_view view = {.judge = judge, .document = print_preempt, .arg = &line};

	options_parse(&argp, &line, argc, argv);
	a->partition = ""; /* all: it is of the host */
	return asking_show(a, SHMSTORE_QUERY_GATE, &view);
}
