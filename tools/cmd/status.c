/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_status.c: "shmstore-admin status": the daemon in a few lines: since when it runs, on what,
 * and each partition that it watches, with the df equation of its last survey, and its disk tier.
 * With --json the daemon's document as it is.
 */
#include <inttypes.h>
#include <stdio.h>

#include "asking.h"
#include "human.h"
#include "jsonin.h"
#include "message.h"
#include "options.h"
#include "table.h"
#include "tierstate.h"

static const struct table_column columns[] = {
	{"PARTITION", FIGURE_TEXT, "partition"},
	{"SIZE", FIGURE_SIZE, "size"},
	{"USED", FIGURE_SIZE, "used"},
	{"FILL", TABLE_FILL, "used/size"},
	{"ALIVE", FIGURE_COUNT, "ledgers.stores"},
	{"OBJECTS", FIGURE_COUNT, "ledgers.objects"},
	{"LINKED", FIGURE_SIZE, "survey.linked", ""},
	{"GHOSTS", FIGURE_SIZE, "survey.ghosts", ""},
	{"POOL", FIGURE_SIZE, "survey.pool", ""},
	{"INFLIGHT", FIGURE_SIZE, "survey.inflight", ""},
	{"FOREIGN", FIGURE_SIZE, "survey.foreign", ""},
	{"RESIDUAL", FIGURE_SIZE | TABLE_BAD, "survey.residual", ""},
	{"SURVEYED", TABLE_RIGHT, "[survey?{survey.age_seconds:time} ago|not yet]"},
};

static void print_daemon(const struct json_object *d)
{
	figure_print(d, false, "shmstored {version}, pid {pid}, up ");
	fputs(human_duration(jsonin_real(d, "time") - jsonin_real(d, "started")), stdout);
	figure_print(d, false, ", {clients:client}, on {backend}[draining?, about to end]\n");
}

static void print_tier(const struct admin *a, const struct json_object *p)
{
	if (!jsonin_has(p, "tier"))
		return;
	figure_print(p, false, "disk tier of {partition}: ");
	tierstate_print_asked(a, jsonin_object(p, "tier"));
}

static void print_document(const struct admin *a, const struct json_object *document)
{
	print_daemon(jsonin_object(document, "daemon"));
	if (jsonin_count(document, "partitions"))
		TABLE_LIST(a, columns, document, "partitions");
	else
		puts("watches no partition");
	for (size_t i = 0; i < jsonin_count(document, "partitions"); i++)
		print_tier(a, jsonin_at(document, "partitions", i));
}

/* After a reconcile, as of that command: 1 where bytes are missing. */
static int judge(const struct json_object *document)
{
	int status = ADMIN_OK;

	for (size_t i = 0; i < jsonin_count(document, "partitions"); i++) {
		const struct json_object *p = jsonin_at(document, "partitions", i);
		int64_t residual = jsonin_i64(jsonin_object(p, "survey"), "residual");

		if (residual)
			status = message_fail(jsonin_text(p, "partition"),
					      "%" PRId64 " bytes are not accounted for", residual);
	}
	return status;
}

int cmd_status(struct admin *a, int argc, char **argv)
{
	static const struct options_row options[] = {
		{"reconcile", 'r', NULL,
		 "have every byte accounted for first; exit status 1 if some are missing",
		 OPTIONS_FLAG},
		{NULL},
	};
	bool reconcile = false;
	struct asking_view view = {.document = print_document};

	OPTIONS_PARSE(a, argc, argv, "status",
		      "Shows the daemon and the partitions that it watches (with -p: that one).\v"
		      "SIZE, USED, ALIVE and OBJECTS are of the last second; the terms of the df "
		      "equation are of the last survey.",
		      .options = options, .own = &reconcile);
	if (reconcile)
		view.judge = judge;
	return asking_show(a, reconcile ? SHMSTORE_QUERY_RECONCILE : SHMSTORE_QUERY_STATUS, &view);
}
