/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_stage.c: "shmstore-admin stage": how workers' memory is divided for the stages of a job: what
 * is configured, who is in which stage with what, who waits and who has less than asked for. It can
 * end a worker's stage.
 */
#include <inttypes.h>
#include <shmstore/stage.h>
#include <stdio.h>

#include "asking.h"
#include "jsonin.h"
#include "message.h"
#include "options.h"
#include "table.h"

static const struct options_row options[] = {
	{"end", 0, "SESSION",
	 "end the stage of the worker with this number, of the column SESSION: your own, or root's "
	 "and the daemon's user's to end",
	 OPTIONS_NUMBER, 0, 1},
	{NULL},
};

static const struct table_column columns[] = {
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

static void print_partition(const struct admin *a, const struct json_object *p)
{
	if (!jsonin_flag(p, "enabled"))
		return;
	figure_print(p, a->bytes,
		     "mode {configured.mode}, conflict {configured.conflict}, waits at most "
		     "{configured.wait_ms} ms; outside of stages a worker has {base.private:size} "
		     "private, {base.shared:size} shared, {base.slots} slots; workers hold "
		     "{held:size} of {total:size}\n");
	if (jsonin_count(p, "sessions"))
		TABLE_LIST(a, columns, p, "sessions");
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

static int end_stage(const struct admin *a, uint64_t session)
{
	_client_ struct shmstore_client *c = asking_open(a);
	char name[32];

	snprintf(name, sizeof(name), "%" PRIu64, session);
	asking_check(c, name, shmstore_client_stage_end(c, session));
	return ADMIN_OK;
}

int cmd_stage(struct admin *a, int argc, char **argv)
{
	uint64_t session = 0;
	const struct asking_view view = {.judge = judge, .partition = print_partition};

	OPTIONS_PARSE(a, argc, argv, "stage",
		      "Shows which worker is in which stage of a job, and how its memory is "
		      "divided for that.\v"
		      "PRIVATE is what its process may have alone, SHARED what its store may hold, "
		      "SLOTS how many tasks run at once. A worker that is \"degraded\" has less "
		      "than its profile says, as others hold the rest. See docs/governor.md.",
		      .options = options, .own = &session);
	return session ? end_stage(a, session) : asking_show(a, SHMSTORE_QUERY_STAGES, &view);
}
