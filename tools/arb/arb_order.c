/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_arb_order.c: "shmstore-admin arb inject, cancel, set": an operator's word to the arbiter. It
 * is said to one partition: the one that -p names, else the only one that the daemon arbitrates.
 */
#include <errno.h>
#include <inttypes.h>
#include <shmstore/arbiter.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arb.h"
#include "asking.h"
#include "jsonin.h"
#include "jsonout.h"
#include "message.h"
#include "options.h"

/* The only partition with an arbiter. 0, or the exit status: all is said. */
static int only_partition(const struct admin *a, char ret_path[ASKING_PARTITION])
{
	struct json_object *document;
	size_t found = 0;
	int status = asking_query(a, SHMSTORE_QUERY_ARBITER, &document);

	if (status)
		return status;
	for (size_t i = 0; i < jsonin_count(document, "partitions"); i++) {
		const struct json_object *p = jsonin_at(document, "partitions", i);

		if (!jsonin_flag(p, "enabled"))
			continue;
		snprintf(ret_path, ASKING_PARTITION, "%s", jsonin_text(p, "partition"));
		found++;
	}
	jsonin_free(document);
	if (found == 1)
		return 0;
	message_say(found ? "arb: the daemon arbitrates several partitions"
			  : "arb: the arbiter is off");
	message_hint(found ? "say which with -p"
			   : "set arbiter { enabled = true } in shmstored.conf(5)");
	return ADMIN_FAILED;
}

/* An order, and the partition that it goes to. */
struct order {
	struct shmstore_client_arb what;
	struct shmstore_client *client;
	char partition[ASKING_PARTITION];
	const char *pool; /* as it was said */
};

/* 0, or the exit status: all is said. */
static int begin(const struct admin *a, struct order *o)
{
	const char *given = asking_partition(a, o->partition);

	if (!given) {
		int status = only_partition(a, o->partition);
		if (status)
			return status;
	} else if (given != o->partition) {
		snprintf(o->partition, sizeof(o->partition), "%s", given);
	}
	return asking_open(a, &o->client);
}

/* target: what it is about, as the user said it. Returns the exit status. */
static int say(const struct order *o, const char *target)
{
	int r = shmstore_client_arbiter(o->client, o->partition, &o->what);

	return r < 0 ? asking_explain(o->client, target, r) : ADMIN_OK;
}

/* The id that the user wrote. False: it is none; said. */
static bool read_id(const char *command, const char *text, uint64_t *ret_id)
{
	if (arb_id_parse(text, ret_id))
		return true;
	message_say("arb %s: %s: is no id, such as 3:1; \"" ADMIN_NAME " arb threads\" shows them",
		    command, text);
	return false;
}

/* ---- inject ---- */

static const char *const kinds[] = {
	[SHMSTORE_ARB_INJECT_RETRY] = "retry",       [SHMSTORE_ARB_INJECT_SPLIT] = "split",
	[SHMSTORE_ARB_INJECT_ERROR] = "error",       [SHMSTORE_ARB_INJECT_TOOBIG] = "toobig",
	[SHMSTORE_ARB_INJECT_TIMEDOUT] = "timedout",
};

static unsigned kind_of(const char *name)
{
	for (unsigned i = SHMSTORE_ARB_INJECT_RETRY; i <= SHMSTORE_ARB_INJECT_TIMEDOUT; i++) {
		if (strcmp(kinds[i], name) == 0)
			return i;
	}
	return 0;
}

static void check(const struct argp_state *state, const struct command_line *line)
{
	struct order *o = line->own;

	if (o->pool && !arb_id_parse(o->pool, &o->what.pool))
		options_usage(state, "--pool %s: is no pool's id; arb pools shows them", o->pool);
	if (o->what.value > UINT32_MAX)
		options_usage(state, "--count %" PRId64 ": is too many", o->what.value);
}

typedef struct order OF;

static void print_injected(const struct admin *a, const struct order *o, const char *target)
{
	const char *of = o->what.task ? "task" : "context", *kind = kinds[o->what.kind];

	if (!a->json) {
		if (!o->what.value)
			printf("%s: no %s for %s %s any more\n", o->partition, kind, of, target);
		else if (o->what.value == 1)
			printf("%s: %s for the next reserve of %s %s\n", o->partition, kind, of,
			       target);
		else
			printf("%s: %s for the next %" PRId64 " reserves of %s %s\n", o->partition,
			       kind, o->what.value, of, target);
		return;
	}
	struct json_object *j = jsonmake_new();
	jsonmake_prose(j, "partition", o->partition);
	jsonmake_prose(j, "inject", kind);
	jsonmake_u64(j, of, o->what.target);
	jsonmake_i64(j, "count", o->what.value);
	jsonmake_u64(j, "skip", o->what.skip);
	json_print(j);
}

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
	o.what.kind = kind_of(line.args[0]);
	if (!o.what.kind) {
		message_say("arb inject: %s: is none of retry, split, error, toobig, timedout",
			    line.args[0]);
		return ADMIN_USAGE;
	}
	if (!read_id("inject", line.args[1], &o.what.target))
		return ADMIN_USAGE;
	int status = begin(a, &o);
	if (status == 0)
		status = say(&o, line.args[1]);
	if (status == 0)
		print_injected(a, &o, line.args[1]);
	shmstore_client_free(o.client);
	return status;
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
	for (size_t i = 0; i < line.n_many; i++) {
		if (!read_id("cancel", line.many_args[i], &o.what.target))
			return ADMIN_USAGE;
	}
	int status = begin(a, &o);
	for (size_t i = 0; i < line.n_many && status == 0; i++) {
		arb_id_parse(line.many_args[i], &o.what.target);
		status = say(&o, line.many_args[i]);
	}
	if (status == 0) {
		struct json_object *j = jsonmake_new();
		jsonmake_prose(j, "partition", o.partition);
		jsonmake_u64(j, "canceled", line.n_many);
		json_say(a, j, "{partition}: told {canceled} to wait no longer\n");
	}
	shmstore_client_free(o.client);
	return status;
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

static bool read_value(const char *text, int64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoll(text, &end, 10);
	if (!errno && !*end && end != text && *ret >= 0)
		return true;
	message_say("arb set: %s: is no number", text);
	return false;
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
	if (!read_value(line.args[1], &o.what.value))
		return ADMIN_USAGE;
	int status = begin(a, &o);
	if (status == 0)
		status = say(&o, o.partition);
	if (status == 0) {
		struct json_object *j = jsonmake_new();
		jsonmake_prose(j, "partition", o.partition);
		jsonmake_prose(j, "knob", knobs[i]);
		jsonmake_i64(j, "value", o.what.value);
		json_say(a, j,
			 "{partition}: {knob} is {value} until the daemon ends; to keep it, write "
			 "it into shmstored.conf\n");
	}
	shmstore_client_free(o.client);
	return status;
}
