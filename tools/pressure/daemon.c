/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon.c: the daemon's word on memory. "shmstore-admin gate": whether more work may begin on this
 * host, since when, by which thresholds, and who waits.
 */
#include <inttypes.h>
#include <shmstore/stage.h>
#include <stdio.h>
#include <string.h>

#include "admin.h"
#include "asking.h"
#include "jsonin.h"
#include "options.h"
#include "sysroot.h"
#include "table.h"

static void show_state(struct table *t, size_t column, const struct json_object *g)
{
	table_text(t, column, jsonin_text(g, "state"));
	table_color(t, column, strcmp(jsonin_text(g, "state"), "open") == 0 ? "green" : "yellow");
}

static const struct table_column gate_columns[] = {
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
	TABLE_ONE(a, gate_columns, g);
	table_heading("Tasks", false);
	TABLE_ONE(a, line_columns, g);
	if (!jsonin_count(g, "tasks"))
		return;
	table_heading("By name", false);
	TABLE_LIST(a, task_columns, g, "tasks");
}

int cmd_gate(struct admin *a, int argc, char **argv)
{
	OPTIONS_PARSE(
		a, argc, argv, "gate",
		"Shows whether more work may begin on this host, and by what that is decided.\v"
		"The gate closes where USED, or the 95th percentile of the last samples, reaches "
		"HIGH, and opens after several samples in a row at LOW or below. QUOTA is how many "
		"tasks may begin within an interval. RESERVED is what is expected of the tasks "
		"that were let in, OF how much that may be now.");
	a->partition = ""; /* all: it is of the host */
	return ASKING_SHOW(
		a, SHMSTORE_QUERY_GATE, .watched = "gate",
		.unless = "gate: the daemon does not watch the host's memory, so there is no gate",
		.document = print_gate);
}

/* ---- preempt --------------------------------------------------------------------------------- */

/*
 * The processes that were asked to stop, or made to, lately, because memory was short; with --dry-
 * run whom it would take, in which order, why, and how much that would free. It changes nothing.
 */

static const struct options_row preempt_options[] = {
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

static void print_preempt(const struct admin *a, const struct json_object *g)
{
	const bool *dry_run = a->own;
	const struct json_object *p = jsonin_object(g, "preemption");

	if (!p)
		return;
	if (*dry_run) {
		figure_print(
			p, false,
			"policy {policy}[enabled?| (switched off)]; {need:size} are to be freed "
			"now; {never} processes run a task that is NEVER, {foreign} are of users "
			"whom the daemon may not signal, {kept} have actors for which no place "
			"has memory (another partition, another daemon)\n");
		if (jsonin_count(p, "plan"))
			TABLE_LIST(a, plan_columns, p, "plan");
	} else if (jsonin_count(p, "recent"))
		TABLE_LIST(a, recent_columns, p, "recent");
}

int cmd_preempt(struct admin *a, int argc, char **argv)
{
	bool dry_run = false;

	OPTIONS_PARSE(
		a, argc, argv, "preempt",
		"Shows which processes were asked to stop, or made to, because memory was short.\v"
		"With --dry-run, which ones it would take: NOW for memory as it is, LATER if it "
		"grows on, wave after wave. Nothing is done to anybody.",
		.options = preempt_options, .own = &dry_run);
	a->partition = ""; /* all: it is of the host */
	return ASKING_SHOW(
		a, SHMSTORE_QUERY_GATE, .watched = "gate",
		.unless = "preempt: the daemon does not watch the host's memory, so it preempts "
			  "nobody",
		.document = print_preempt);
}

/* ---- stage ----------------------------------------------------------------------------------- */

/*
 * How workers' memory is divided for the stages of a job: what is configured, who is in which stage
 * with what, who waits and who has less than asked for. It can end a worker's stage.
 */

static const struct options_row stage_options[] = {
	{"end", 0, "SESSION",
	 "end the stage of the worker with this number, of the column SESSION: your own, or root's "
	 "and the daemon's user's to end",
	 OPTIONS_NUMBER, 0, 1},
	{NULL},
};

static const struct table_column stage_columns[] = {
	{"SESSION", FIGURE_COUNT, "session"},
	{"STORE", TABLE_TRUNC, "store"},
	{"PID", FIGURE_COUNT, "pid"},
	{"STAGE", TABLE_TRUNC, "stage"},
	{"STATE", TABLE_STATE, "state"},
	{"FOR", FIGURE_TIME, "since_seconds"},
	{"PROFILE", FIGURE_COUNT, "profile"},
	{"PRIVATE", FIGURE_SIZE, "private"},
	{"SHARED", FIGURE_SIZE, "shared"},
	{"SLOTS", FIGURE_COUNT, "slots"},
	{"WAITED", FIGURE_TENTHS, "waited_seconds"},
};

static void print_stages(const struct admin *a, const struct json_object *p)
{
	if (!jsonin_flag(p, "enabled"))
		return;
	figure_print(p, a->bytes,
		     "mode {configured.mode}, conflict {configured.conflict}, waits at most "
		     "{configured.wait_ms} ms; outside of stages a worker has {base.private:size} "
		     "private, {base.shared:size} shared, {base.slots} slots; workers hold "
		     "{held:size} of {total:size}\n");
	if (jsonin_count(p, "sessions"))
		TABLE_LIST(a, stage_columns, p, "sessions");
	else
		puts("no worker has asked for a stage so far");
}

static int judge(const struct json_object *document)
{
	for (size_t i = 0; i < jsonin_count(document, "partitions"); i++)
		if (jsonin_flag(jsonin_at(document, "partitions", i), "enabled"))
			return ADMIN_OK;
	message_say("stage: stage profiles are off: every worker has the same for every stage");
	message_hint("set stage { enabled = yes } in shmstored.conf, and reload it");
	return ADMIN_FAILED;
}

int cmd_stage(struct admin *a, int argc, char **argv)
{
	uint64_t session = 0;
	char name[32];

	OPTIONS_PARSE(a, argc, argv, "stage",
		      "Shows which worker is in which stage of a job, and how its memory is "
		      "divided for that.\v"
		      "PRIVATE is what its process may have alone, SHARED what its store may hold, "
		      "SLOTS how many tasks run at once. A worker that is \"degraded\" has less "
		      "than its profile says, as others hold the rest. See docs/governor.md.",
		      .options = stage_options, .own = &session);
	if (!session)
		return ASKING_SHOW(a, SHMSTORE_QUERY_STAGES, .judge = judge,
				   .partition = print_stages);
	_client_ struct shmstore_client *c = asking_open(a);
	snprintf(name, sizeof(name), "%" PRIu64, session);
	asking_check(c, name, shmstore_client_stage_end(c, session));
	return ADMIN_OK;
}

/* ---- mem ------------------------------------------------------------------------------------- */

/*
 * How much this host, and the memory cgroups that this process is in, may use and use; each term
 * with the file that it is from. Needs neither daemon nor partition. With --daemon: the memory that
 * the daemon watches, whose it is, and the thresholds.
 */

struct mem {
	bool swap, daemon;
};

typedef struct mem OF;
static const struct options_row options[] = {
	{"swap", 0, NULL, "Count swap, in what may be used and in what is", OPTIONS_FLAG,
	 offsetof(OF, swap)},
	{"daemon", 0, NULL, "Show what the daemon watches: whose the memory is, and the thresholds",
	 OPTIONS_FLAG, offsetof(OF, daemon)},
	{NULL},
};

static void print_text(const struct admin *a, const struct json_object *o)
{
	static const struct table_column memories[] = {
		{"MEMORY", FIGURE_TEXT, "source"},
		{"TOTAL", TABLE_RIGHT,
		 "[has total?{total:size}|[has cgroup_version?no limit|unknown]]"},
		{"USED", FIGURE_SIZE, "used", "unknown"},
		{"FILL", TABLE_FILL, "used/total"},
		{"COUNTS", 0, "[tightest?the tightest]"}};
	static const struct table_column terms[] = {
		{"SOURCE"},
		{"TERM", FIGURE_TEXT, "term"},
		{"SIZE", TABLE_RIGHT, "[has size?{size:size}|[state=unlimited?no limit|unknown]]"}};
	struct table t;

	TABLE_LIST(a, memories, o, "memories");
	putchar('\n');
	table_init(&t, a, terms, sizeof(terms) / sizeof(terms[0]));
	for (size_t i = 0; i < jsonin_count(o, "memories"); i++) {
		const struct json_object *m = jsonin_at(o, "memories", i);

		for (size_t k = 0; k < jsonin_count(m, "terms"); k++) {
			table_object(&t, jsonin_at(m, "terms", k));
			table_text(&t, 0, jsonin_text(m, "source"));
		}
	}
	table_finish(&t);
}

/* ---- what the daemon watches ----------------------------------------------------------------- */

static void print_sums(const struct admin *a, const struct json_object *m)
{
	static const struct table_column columns[] = {
		{"OF THE HOST", 0}, {"SIZE", TABLE_RIGHT}, {"WHAT IT IS", 0}};
	static const char *const rows[][2] = {
		{"total", "what may be used: the tightest limit"},
		{"used", "of it; private, store and other together"},
		{"private", "of registered processes and their descendants"},
		{"store", "of the partitions under watch"},
		{"other", "all else"},
		{"low", "down to here before more work begins again"},
		{"gate", "from here on no more work begins"},
		{"kill", "above this, tasks are preempted"},
	};
	struct table t;

	table_init(&t, a, columns, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		table_row(&t);
		table_text(&t, 0, rows[i][0]);
		if (jsonin_has(m, rows[i][0]))
			table_size(&t, 1, jsonin_u64(m, rows[i][0]));
		else
			table_text(&t, 1, "unknown");
		table_text(&t, 2,
			   strcmp(rows[i][0], "total") == 0 ? jsonin_text(m, "source")
							    : rows[i][1]);
	}
	table_finish(&t);
}

static void print_daemon(const struct admin *a, const struct json_object *m)
{
	static const struct table_column processes[] = {
		{"PID", FIGURE_COUNT, "pid"},
		{"UID", FIGURE_COUNT, "uid"},
		{"PRIVATE", FIGURE_SIZE, "private", "unknown"},
		{"DESCENDANTS", FIGURE_COUNT, "descendants"}};

	print_sums(a, m);
	if (!jsonin_count(m, "processes"))
		return;
	putchar('\n');
	TABLE_LIST(a, processes, m, "processes");
}

int cmd_mem(struct admin *a, int argc, char **argv)
{
	struct mem own = {0};
	struct memsource_reading r = MEMSOURCE_NULL;
	const struct memsource_level *tightest;
	struct json_object *o;
	int status = ADMIN_OK, err;

	OPTIONS_PARSE(a, argc, argv, "mem",
		      "What this host and the memory cgroups around this process may use and use, "
		      "term by term, with the source of each.\v"
		      "The memory that counts is the tightest: the smallest total of the host and "
		      "of each cgroup up to the root. Page cache does not count as used, and tmpfs "
		      "does. What could not be read is unknown, not 0.",
		      .options = options, .own = &own);
	if (own.daemon) {
		a->partition = ""; /* all: it is of the host */
		return ASKING_SHOW(a, SHMSTORE_QUERY_MEMORY, .watched = "memory",
				   .unless = "mem: the daemon does not watch the host's memory",
				   .document = print_daemon);
	}
	err = sysroot_memory(a, own.swap, &r);
	if (err < 0)
		return message_error("mem", err);
	tightest = &r.levels[r.tightest];
	o = jsonmake_new();
	jsonmake_text(o, "tightest", tightest->path);
	memjson_amount(o, "total", tightest->use.total);
	memjson_amount(o, "used", tightest->use.used);
	jsonmake_flag(o, "swap", own.swap);
	memjson_levels(o, &r);
	json_show(a, o, print_text);
	if (!tightest->use.total.known || !tightest->use.used.known) {
		status = message_fail(
			tightest->path,
			"what is used of how much cannot be told: some terms are unknown");
		message_hint("they are listed; as a rule the file is missing, or this user may not "
			     "read it");
	}
	memsource_deinit(&r);
	return status;
}
