/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_actors.c: "shmstore-admin actors": where each actor is, what waits for it, and which daemons
 * have copies of its state. */
#include <inttypes.h>
#include <stdio.h>

#include "asking.h"
#include "human.h"
#include "jsonin.h"
#include "options.h"
#include "table.h"

#define COLUMNS(X)                           \
	X(ACTOR, "ACTOR", TABLE_TRUNC)       \
	X(USER, "UID", TABLE_RIGHT)          \
	X(STATE, "STATE", 0)                 \
	X(WHERE, "PLACE", TABLE_TRUNC)       \
	X(PID, "PID", TABLE_RIGHT)           \
	X(DAEMON, "DAEMON", TABLE_TRUNC)     \
	X(QUEUED, "QUEUED", TABLE_RIGHT)     \
	X(MOVABLE, "MOVABLE", 0)             \
	X(RESTARTS, "RESTARTS", TABLE_RIGHT) \
	X(OPTIONS, "OPTIONS", TABLE_WRAP)    \
	X(COPIES, "COPIES", TABLE_WRAP)
TABLE_COLUMNS(columns, COLUMNS, N_COLUMNS);

/* "node2 at 7 (2 MiB), node3 at 6 (2 MiB)" */
static void print_copies(struct table *t, const struct json_object *o)
{
	char text[512] = "-", size[HUMAN_SIZE];
	size_t n = 0;

	for (size_t i = 0; i < jsonin_count(o, "copies") && n < sizeof(text); i++) {
		const struct json_object *c = jsonin_at(o, "copies", i);

		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s at %" PRIu64 " (%s)",
				      i ? ", " : "", jsonin_text(c, "daemon"),
				      jsonin_u64(c, "version"),
				      human_size(jsonin_u64(c, "bytes"), size));
	}
	table_text(t, COPIES, text);
}

/* "explicit:2 by resource, round_robin every 5 s, retry 3, stale never" */
static void print_options(struct table *t, const struct json_object *o)
{
	if (!jsonin_flag(o, "copies"))
		table_text(t, OPTIONS, "no copies");
	else
		table_printf(t, OPTIONS, "%s by %s, %s every %g s, retry %" PRIu64 ", stale %s%s",
			     jsonin_text(o, "num"), jsonin_text(o, "selection"),
			     jsonin_text(o, "strategy"), jsonin_real(o, "frequency"),
			     jsonin_u64(o, "retry"), jsonin_text(o, "preempt_from_stale"),
			     jsonin_flag(o, "panic_on_missing") ? ", panic on missing" : "");
}

static void print_actor(struct table *t, const struct json_object *o)
{
	table_row(t);
	table_text(t, ACTOR, jsonin_text(o, "name"));
	table_printf(t, USER, "%" PRIu64, jsonin_u64(o, "uid"));
	table_text(t, STATE, jsonin_text(o, "state"));
	table_text(t, WHERE, jsonin_has(o, "place") ? jsonin_text(o, "place") : "-");
	table_printf(t, PID, "%" PRId64, jsonin_i64(o, "pid"));
	table_text(t, DAEMON, jsonin_has(o, "daemon") ? jsonin_text(o, "daemon") : "-");
	table_count(t, QUEUED, jsonin_u64(o, "queued"));
	table_text(t, MOVABLE, jsonin_flag(o, "movable") ? "yes" : "no");
	if (jsonin_has(o, "restarts_left"))
		table_count(t, RESTARTS, jsonin_u64(o, "restarts_left"));
	else
		table_text(t, RESTARTS, "always");
	print_options(t, jsonin_object(o, "options"));
	print_copies(t, o);
}

static void print_actors(const struct json_object *document, void *arg)
{
	const struct json_object *o = jsonin_object(document, "actors");
	struct table t;

	printf("%" PRIu64 " places, %zu other daemons, copies %s; so far %" PRIu64
	       " calls answered, %" PRIu64 " lost; %" PRIu64 " actors moved, %" PRIu64
	       " moves failed, %" PRIu64 " actors begun again, %" PRIu64 " lost\n",
	       jsonin_u64(o, "places"), jsonin_count(o, "peers"),
	       jsonin_flag(o, "copies") ? "on" : "off", jsonin_u64(o, "answered"),
	       jsonin_u64(o, "lost"), jsonin_u64(o, "moves"), jsonin_u64(o, "failed"),
	       jsonin_u64(o, "restarts"), jsonin_u64(o, "died"));
	if (!jsonin_count(o, "actors"))
		return;
	table_init(&t, arg, columns, N_COLUMNS);
	for (size_t i = 0; i < jsonin_count(o, "actors"); i++)
		print_actor(&t, jsonin_at(o, "actors", i));
	table_finish(&t);
}

int cmd_actors(struct admin *a, int argc, char **argv)
{
	static const struct argp argp =
		OPTIONS_ARGP(NULL, options_common, "actors",
			     "Shows each actor: what it does, the place and the process where it "
			     "is, or the other daemon where it "
			     "lives, and what waits for it.\v"
			     "MOVABLE: it may be moved where memory is short. RESTARTS: how often "
			     "it is still begun again when its "
			     "process dies. OPTIONS: how copies of it are made. COPIES are at "
			     "other daemons, each with the version "
			     "of the state that it has. Of other users root and the daemon's user "
			     "see the actors.");
	struct command_line line = {.admin = a};
	const struct asking_view view = {.document = print_actors, .arg = a};

	options_parse(&argp, &line, argc, argv);
	a->partition = ""; /* all: it is of the host */
	return asking_show(a, SHMSTORE_QUERY_ACTORS, &view);
}
