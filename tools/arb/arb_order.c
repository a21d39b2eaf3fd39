/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_arb_order.c: "shmstore-admin arb inject, cancel, set": an operator's word to the arbiter. It
 * is said to one partition: the one that -p names, else the only one that the daemon arbitrates.
 */
#include <inttypes.h>
#include <shmstore/arbiter.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin.h"
#include "asking.h"
#include "jsonin.h"
#include "options.h"

/* The only partition with an arbiter. Ends the program where there is none, or several. */
static void only_partition(const struct admin *a, char ret_path[PATH_MAX])
{
	_json_ struct json_object *document = asking_query(a, SHMSTORE_QUERY_ARBITER);
	size_t found = 0;

	for (size_t i = 0; i < jsonin_count(document, "partitions"); i++) {
		const struct json_object *p = jsonin_at(document, "partitions", i);

		if (!jsonin_flag(p, "enabled"))
			continue;
		snprintf(ret_path, PATH_MAX, "%s", jsonin_text(p, "partition"));
		found++;
	}
	if (found == 1)
		return;
	message_say(found ? "arb: the daemon arbitrates several partitions"
			  : "arb: the arbiter is off");
	message_hint(found ? "say which with -p"
			   : "set arbiter { enabled = true } in shmstored.conf(5)");
	exit(ADMIN_FAILED);
}

/* An order, and the partition that it goes to. */
struct order {
	struct shmstore_client_arb what;
	char partition[PATH_MAX];
	const char *pool; /* as it was said */
};

/* Finds out the partition, and who can be told. */
static struct shmstore_client *begin(const struct admin *a, struct order *o)
{
	const char *given = asking_partition(a);

	if (given)
		snprintf(o->partition, sizeof(o->partition), "%s", given);
	else
		only_partition(a, o->partition);
	return asking_open(a);
}

/* target: what it is about, as the user said it. Ends the program where the daemon refuses. */
static void say(struct shmstore_client *c, const struct order *o, const char *target)
{
	asking_check(c, target, shmstore_client_arbiter(c, o->partition, &o->what));
}

/* The id that the user wrote. Ends the program where it is none. */
static uint64_t read_id(const char *command, const char *text)
{
	uint64_t id;

	if (human_parse_id(text, &id))
		return id;
	message_say("arb %s: %s: is no id, such as 3:1; \"" ADMIN_NAME " arb threads\" shows them",
		    command, text);
	exit(ADMIN_USAGE);
}

/* ---- inject ---- */

static const char *const kinds[] = {
	[SHMSTORE_ARB_INJECT_RETRY] = "retry",       [SHMSTORE_ARB_INJECT_SPLIT] = "split",
	[SHMSTORE_ARB_INJECT_ERROR] = "error",       [SHMSTORE_ARB_INJECT_TOOBIG] = "toobig",
	[SHMSTORE_ARB_INJECT_TIMEDOUT] = "timedout",
};

static void check(const struct argp_state *state, const struct command_line *line)
{
	struct order *o = line->own;

	if (o->pool && !human_parse_id(o->pool, &o->what.pool))
		options_usage(state, "--pool %s: is no pool's id; arb pools shows them", o->pool);
	if (o->what.value > UINT32_MAX)
		options_usage(state, "--count %" PRId64 ": is too many", o->what.value);
}

typedef struct order OF;

int cmd_arb_inject(struct admin *a, int argc, char **argv)
{
	static const struct options_row options[] = {
		{"task", 0, NULL, "ID is a task's: of all its contexts", OPTIONS_FLAG,
		 offsetof(OF, what.task)},
		{"count", 0, "N", "so many reserves (default: 1; 0: none any more)", OPTIONS_NUMBER,
		 offsetof(OF, what.value)},
		{"skip", 0, "N", "after so many (default: 0)", OPTIONS_NUMBER,
		 offsetof(OF, what.skip)},
		{"pool", 0, "ID", "only in that pool (default: in any)", OPTIONS_TEXT,
		 offsetof(OF, pool)},
		{NULL},
	};
	static const char *const names[] = {"KIND", "ID", NULL};
	struct order o = {.what = {.order = SHMSTORE_ARB_ORDER_INJECT, .value = 1}};
	struct command_line line = OPTIONS_LINE(
		a, "arb inject KIND ID",
		"Makes the next reserves of a context fail, to see whether its program copes.\v"
		"KIND: retry, split, error, toobig or timedout. ID as arb threads shows it. Nobody "
		"else is disturbed. Root and the daemon's user only.",
		.names = names, .n_needed = 2, .options = options, .own = &o, .check = check);

	options_parse(&line, argc, argv);
	for (unsigned i = SHMSTORE_ARB_INJECT_RETRY; i <= SHMSTORE_ARB_INJECT_TIMEDOUT; i++)
		if (strcmp(kinds[i], line.args[0]) == 0)
			o.what.kind = i;
	if (!o.what.kind) {
		message_say("arb inject: %s: is none of retry, split, error, toobig, timedout",
			    line.args[0]);
		return ADMIN_USAGE;
	}
	o.what.target = read_id("inject", line.args[1]);
	_client_ struct shmstore_client *c = begin(a, &o);
	say(c, &o, line.args[1]);
	struct json_object *j = jsonmake_new();
	jsonmake_prose(j, "partition", o.partition);
	jsonmake_prose(j, "inject", kinds[o.what.kind]);
	jsonmake_u64(j, o.what.task ? "task" : "context", o.what.target);
	jsonmake_i64(j, "count", o.what.value);
	jsonmake_u64(j, "skip", o.what.skip);
	if (!a->json)
		jsonmake_prose(j, "target", line.args[1]);
	json_say(a, j,
		 "{partition}: [count?{inject} for the next [count=1?reserve|{count} reserves] of|"
		 "no {inject} for] [task?task|context] {target}[count?| any more]\n");
	return ADMIN_OK;
}

/* ---- cancel ---- */

int cmd_arb_cancel(struct admin *a, int argc, char **argv)
{
	static const struct options_row options[] = {
		{"task", 0, NULL, "each ID is a task's: all its contexts", OPTIONS_FLAG,
		 offsetof(OF, what.task)},
		{NULL},
	};
	static const char *const names[] = {"ID", NULL};
	struct order o = {.what = {.order = SHMSTORE_ARB_ORDER_CANCEL}};
	struct command_line line = OPTIONS_LINE(
		a, "arb cancel ID...",
		"Ends what contexts wait for: their calls return CANCELED.\v"
		"ID as arb threads shows it. One that does not wait is left alone. Root and the "
		"daemon's user only.",
		.names = names, .n_needed = 1, .many = true, .options = options, .own = &o);

	options_parse(&line, argc, argv);
	for (size_t i = 0; i < line.n_many; i++)
		read_id("cancel", line.many_args[i]);
	_client_ struct shmstore_client *c = begin(a, &o);
	for (size_t i = 0; i < line.n_many; i++) {
		o.what.target = read_id("cancel", line.many_args[i]);
		say(c, &o, line.many_args[i]);
	}
	struct json_object *j = jsonmake_new();
	jsonmake_prose(j, "partition", o.partition);
	jsonmake_u64(j, "canceled", line.n_many);
	json_say(a, j, "{partition}: told {canceled} to wait no longer\n");
	return ADMIN_OK;
}

/* ---- set ---- */

/* In the order of their numbers, from 1. */
static const char *const knobs[] = {"max_bypass",  "suspect_ticks", "split_ticks",
				    "retry_limit", "early_detect",  "os_probe"};
#define N_KNOBS (sizeof(knobs) / sizeof(knobs[0]))

/* max-bypass, as in shmstored.conf, is max_bypass. */
static bool same_name(const char *knob, const char *given)
{
	for (; *knob && *given; knob++, given++) {
		if (*knob != *given && !(*knob == '_' && *given == '-'))
			return false;
	}
	return !*knob && !*given;
}

int cmd_arb_set(struct admin *a, int argc, char **argv)
{
	static const char *const names[] = {"KNOB", "VALUE", NULL};
	struct order o = {.what = {.order = SHMSTORE_ARB_ORDER_KNOB}};
	struct command_line line = OPTIONS_LINE(
		a, "arb set KNOB VALUE",
		"Changes how the arbiter decides, until the daemon ends.\v"
		"max_bypass: times that a waiter lets others pass before nobody below it is "
		"served. suspect_ticks, split_ticks: silent ticks after which what seems stuck "
		"counts as stuck, for a roll back and for a split. retry_limit: outcomes in a row "
		"after which a task fails. early_detect, os_probe: 0 or 1. For good they belong "
		"into shmstored.conf(5), as how long a wait and a tick are. Root and the daemon's "
		"user only.",
		.names = names, .n_needed = 2);
	uint64_t value;
	size_t i = 0;

	options_parse(&line, argc, argv);
	while (i < N_KNOBS && !same_name(knobs[i], line.args[0]))
		i++;
	if (i == N_KNOBS) {
		message_say("arb set: %s: is none of max_bypass, suspect_ticks, split_ticks, "
			    "retry_limit, early_detect, os_probe",
			    line.args[0]);
		return ADMIN_USAGE;
	}
	o.what.kind = (unsigned)i + 1;
	if (!human_number(line.args[1], INT64_MAX, &value)) {
		message_say("arb set: %s: is no number", line.args[1]);
		return ADMIN_USAGE;
	}
	o.what.value = (int64_t)value;
	_client_ struct shmstore_client *c = begin(a, &o);
	say(c, &o, o.partition);
	struct json_object *j = jsonmake_new();
	jsonmake_prose(j, "partition", o.partition);
	jsonmake_prose(j, "knob", knobs[i]);
	jsonmake_i64(j, "value", o.what.value);
	json_say(a, j,
		 "{partition}: {knob} is {value} until the daemon ends; to keep it, write it into "
		 "shmstored.conf\n");
	return ADMIN_OK;
}
