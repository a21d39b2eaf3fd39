/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_stage.c: "shmstore-admin stage": how workers' memory is divided for the stages of a job: what is configured, who is in which stage with what, who waits and
 * who has less than asked for. It can end a worker's stage.
 */
#include <errno.h>
#include <inttypes.h>
#include <shmstore/stage.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "asking.h"
#include "human.h"
#include "jsonin.h"
#include "message.h"
#include "options.h"
#include "table.h"

enum {
	OPTION_END = 0x100
};

static const struct argp_option options[] = {
	{"end", OPTION_END, "SESSION", 0,
	 "end the stage of the worker with this number: your own, or root's and the daemon's user's to end", 0},
	{NULL, 0, NULL, 0, NULL, 0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct command_line *line = state->input;
	unsigned long long number;
	char *end;

	if (key != OPTION_END)
		return options_common(key, arg, state);
	errno = 0;
	number = strtoull(arg, &end, 10);
	if (errno || *end || *arg < '1' || *arg > '9')
		argp_error(state, "%s is no worker's number; the column SESSION has them", arg);
	*(uint64_t *)line->own = number;
	return 0;
}

#define COLUMNS(X)                         \
	X(SESSION, "SESSION", TABLE_RIGHT) \
	X(STORE, "STORE", TABLE_TRUNC)     \
	X(PID, "PID", TABLE_RIGHT)         \
	X(STAGE, "STAGE", TABLE_TRUNC)     \
	X(STATE, "STATE", 0)               \
	X(FOR, "FOR", TABLE_RIGHT)         \
	X(PROFILE, "PROFILE", TABLE_RIGHT) \
	X(PRIVATE, "PRIVATE", TABLE_RIGHT) \
	X(SHARED, "SHARED", TABLE_RIGHT)   \
	X(SLOTS, "SLOTS", TABLE_RIGHT)     \
	X(WAITED, "WAITED", TABLE_RIGHT)
TABLE_COLUMNS(columns, COLUMNS, N_COLUMNS);

static void print_session(struct table *t, const struct json_object *o)
{
	const char *state = jsonin_text(o, "state");
	char text[HUMAN_SIZE];

	table_row(t);
	table_printf(t, SESSION, "%" PRIu64, jsonin_u64(o, "session"));
	table_text(t, STORE, jsonin_text(o, "store"));
	table_printf(t, PID, "%" PRId64, jsonin_i64(o, "pid"));
	table_text(t, STAGE, jsonin_text(o, "stage"));
	table_text(t, STATE, state);
	table_color(t, STATE, strcmp(state, "waiting") == 0 || strcmp(state, "degraded") == 0 ? "yellow" : "green");
	table_text(t, FOR, human_duration(jsonin_real(o, "since_seconds"), text));
	table_count(t, PROFILE, jsonin_u64(o, "profile"));
	table_size(t, PRIVATE, jsonin_u64(o, "private"));
	table_size(t, SHARED, jsonin_u64(o, "shared"));
	table_count(t, SLOTS, jsonin_u64(o, "slots"));
	table_printf(t, WAITED, "%.1f s", jsonin_real(o, "waited_seconds"));
}

static void print_partition(const struct json_object *p, void *arg)
{
	const struct admin *a = arg;
	const struct json_object *configured = jsonin_object(p, "configured"), *base = jsonin_object(p, "base");
	char private[HUMAN_SIZE], shared[HUMAN_SIZE], held[HUMAN_SIZE], total[HUMAN_SIZE];
	struct table t;

	if (!jsonin_flag(p, "enabled"))
		return;
	printf("mode %s, conflict %s, waits at most %" PRIu64
	       " ms; outside of stages a worker has %s private, %s shared, %" PRIu64 " slots; workers hold %s of %s\n",
	       jsonin_text(configured, "mode"), jsonin_text(configured, "conflict"), jsonin_u64(configured, "wait_ms"),
	       human_bytes(jsonin_u64(base, "private"), a->bytes, private),
	       human_bytes(jsonin_u64(base, "shared"), a->bytes, shared), jsonin_u64(base, "slots"),
	       human_bytes(jsonin_u64(p, "held"), a->bytes, held),
	       human_bytes(jsonin_u64(p, "total"), a->bytes, total));
	if (!jsonin_count(p, "sessions")) {
		puts("no worker has asked for a stage so far");
		return;
	}
	table_init(&t, a, columns, N_COLUMNS);
	for (size_t i = 0; i < jsonin_count(p, "sessions"); i++)
		print_session(&t, jsonin_at(p, "sessions", i));
	table_finish(&t);
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

static int end_stage(const struct admin *a, uint64_t session)
{
	struct shmstore_client *c;
	char name[32];
	int status = asking_open(a, &c), r;

	if (status)
		return status;
	snprintf(name, sizeof(name), "%" PRIu64, session);
	r = shmstore_client_stage_end(c, session);
	if (r < 0)
		status = asking_explain(c, name, r);
	shmstore_client_free(c);
	return status;
}

int cmd_stage(struct admin *a, int argc, char **argv)
{
	static const struct argp argp = OPTIONS_ARGP(
		options, parse, "stage",
		"Shows which worker is in which stage of a job, and how its memory is divided for that.\v"
		"PRIVATE is what its process may have alone, SHARED what its store may hold, SLOTS how many tasks run "
		"at once. A worker that is "
		"\"degraded\" has less than its profile says, as others hold the rest. docs/stages.md has the rules.");
	uint64_t session = 0;
	struct command_line line = {.admin = a, .own = &session};
	const struct asking_view view = {.judge = judge, .partition = print_partition, .arg = a};

	options_parse(&argp, &line, argc, argv);
	return session ? end_stage(a, session) : asking_show(a, SHMSTORE_QUERY_STAGES, &view);
}
