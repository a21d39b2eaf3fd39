/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_status.c: "shmstore-admin status": the daemon in a few lines: since when it runs, on what, and each partition that it watches, with
 * the df equation of its last survey, and its disk tier. With --json the daemon's document as it is.
 */
#include <inttypes.h>
#include <stdio.h>

#include "asking.h"
#include "human.h"
#include "jsonin.h"
#include "keytext.h"
#include "message.h"
#include "options.h"
#include "table.h"
#include "tierstate.h"

#define COLUMNS(X)                           \
	X(PARTITION, "PARTITION", 0)         \
	X(SIZE, "SIZE", TABLE_RIGHT)         \
	X(USED, "USED", TABLE_RIGHT)         \
	X(FILL, "FILL", TABLE_RIGHT)         \
	X(STORES, "ALIVE", TABLE_RIGHT)      \
	X(OBJECTS, "OBJECTS", TABLE_RIGHT)   \
	X(LINKED, "LINKED", TABLE_RIGHT)     \
	X(GHOSTS, "GHOSTS", TABLE_RIGHT)     \
	X(POOL, "POOL", TABLE_RIGHT)         \
	X(INFLIGHT, "INFLIGHT", TABLE_RIGHT) \
	X(FOREIGN, "FOREIGN", TABLE_RIGHT)   \
	X(RESIDUAL, "RESIDUAL", TABLE_RIGHT) \
	X(AGE, "SURVEYED", TABLE_RIGHT)
TABLE_COLUMNS(columns, COLUMNS, N_COLUMNS);

static void print_daemon(const struct json_object *d)
{
	char age[HUMAN_SIZE], clients[HUMAN_SIZE];
	double up = jsonin_real(d, "time") - jsonin_real(d, "started");

	fputs("shmstored ", stdout);
	keytext_print(jsonin_text(d, "version"));
	printf(", pid %" PRId64 ", up %s, %s, on ", jsonin_i64(d, "pid"), human_duration(up, age),
	       human_count(jsonin_u64(d, "clients"), "client", clients));
	keytext_print(jsonin_text(d, "backend"));
	puts(jsonin_flag(d, "draining") ? ", about to end" : "");
}

static void print_survey(struct table *t, const struct json_object *s)
{
	static const struct {
		size_t column;
		const char *name;
	} terms[] = {{LINKED, "linked"},     {GHOSTS, "ghosts"},   {POOL, "pool"},
		     {INFLIGHT, "inflight"}, {FOREIGN, "foreign"}, {RESIDUAL, "residual"}};
	char age[HUMAN_SIZE];

	if (!s) {
		table_text(t, AGE, "not yet");
		return;
	}
	for (size_t i = 0; i < sizeof(terms) / sizeof(terms[0]); i++) {
		int64_t value = jsonin_i64(s, terms[i].name);
		if (value < 0)
			table_printf(t, terms[i].column, "%" PRId64, value);
		else
			table_size(t, terms[i].column, (uint64_t)value);
	}
	if (jsonin_i64(s, "residual"))
		table_color(t, RESIDUAL, "red");
	table_printf(t, AGE, "%s ago", human_duration(jsonin_real(s, "age_seconds"), age));
}

static void print_partitions(const struct admin *a, const struct json_object *document)
{
	size_t n = jsonin_count(document, "partitions");
	struct table t;

	if (!n) {
		puts("watches no partition");
		return;
	}
	table_init(&t, a, columns, N_COLUMNS);
	for (size_t i = 0; i < n; i++) {
		const struct json_object *p = jsonin_at(document, "partitions", i),
					 *ledgers = jsonin_object(p, "ledgers");
		uint64_t size = jsonin_u64(p, "size"), used = jsonin_u64(p, "used");

		table_row(&t);
		table_text(&t, PARTITION, jsonin_text(p, "partition"));
		table_size(&t, SIZE, size);
		table_size(&t, USED, used);
		table_fill(&t, FILL, used, size);
		table_count(&t, STORES, jsonin_u64(ledgers, "stores"));
		table_count(&t, OBJECTS, jsonin_u64(ledgers, "objects"));
		print_survey(&t, jsonin_object(p, "survey"));
	}
	table_finish(&t);
}

static void print_tier(const struct admin *a, const struct json_object *p)
{
	const struct json_object *t = jsonin_object(p, "tier");

	if (!t)
		return;
	fputs("disk tier of ", stdout);
	keytext_print(jsonin_text(p, "partition"));
	fputs(": ", stdout);
	tierstate_print_asked(a, t);
}

static void print_document(const struct json_object *document, void *arg)
{
	print_daemon(jsonin_object(document, "daemon"));
	print_partitions(arg, document);
	for (size_t i = 0; i < jsonin_count(document, "partitions"); i++)
		print_tier(arg, jsonin_at(document, "partitions", i));
}

/* After a reconcile, as of that command: 1 where bytes are missing. */
static int judge(const struct json_object *document)
{
	int status = ADMIN_OK;

	for (size_t i = 0; i < jsonin_count(document, "partitions"); i++) {
		const struct json_object *p = jsonin_at(document, "partitions", i);
		int64_t residual = jsonin_i64(jsonin_object(p, "survey"), "residual");

		if (residual)
			status = message_fail(jsonin_text(p, "partition"), "%" PRId64 " bytes are not accounted for",
					      residual);
	}
	return status;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct command_line *line = state->input;
	bool *reconcile = line->own;

	if (key != 'r')
		return options_common(key, arg, state);
	*reconcile = true;
	return 0;
}

int cmd_status(struct admin *a, int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"reconcile", 'r', NULL, 0, "have every byte accounted for first; exit status 1 if some are missing",
		 0},
		{NULL, 0, NULL, 0, NULL, 0},
	};
	static const struct argp argp = OPTIONS_ARGP(
		options, parse, "status",
		"Shows the daemon and the partitions that it watches (with -p: that one).\v"
		"SIZE, USED, ALIVE and OBJECTS are of the last second; the terms of the df equation are of the last "
		"survey.");
	bool reconcile = false;
	struct command_line line = {.admin = a, .own = &reconcile};
	struct asking_view view = {.document = print_document, .arg = a};

	options_parse(&argp, &line, argc, argv);
	if (reconcile)
		view.judge = judge;
	return asking_show(a, reconcile ? SHMSTORE_QUERY_RECONCILE : SHMSTORE_QUERY_STATUS, &view);
}
