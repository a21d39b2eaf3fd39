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

/* "node2 at 7 (2 MiB), node3 at 6 (2 MiB)" */
static void show_copies(struct table *t, size_t column, const struct json_object *o)
{
	char text[512] = "-";
	size_t n = 0;

	for (size_t i = 0; i < jsonin_count(o, "copies") && n < sizeof(text); i++) {
		const struct json_object *c = jsonin_at(o, "copies", i);

		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s at %" PRIu64 " (%s)",
				      i ? ", " : "", jsonin_text(c, "daemon"),
				      jsonin_u64(c, "version"), human_size(jsonin_u64(c, "bytes")));
	}
	table_text(t, column, text);
}

static const struct table_column columns[] = {
	{"ACTOR", TABLE_TRUNC, "name"},
	{"UID", FIGURE_COUNT, "uid"},
	{"STATE", FIGURE_TEXT, "state"},
	{"PLACE", TABLE_TRUNC, "place", "-"},
	{"PID", FIGURE_COUNT, "pid"},
	{"DAEMON", TABLE_TRUNC, "daemon", "-"},
	{"QUEUED", FIGURE_COUNT, "queued"},
	{"MOVABLE", FIGURE_FLAG, "movable"},
	{"RESTARTS", FIGURE_COUNT, "restarts_left", "always"},
	{"OPTIONS", TABLE_WRAP,
	 "[options.copies?{options.num} by {options.selection}, {options.strategy} every "
	 "{options.frequency} s, retry {options.retry}, stale {options.preempt_from_stale}"
	 "[options.panic_on_missing?, panic on missing]|no copies]"},
	{"COPIES", TABLE_WRAP, .show = show_copies},
};

static void print_actors(const struct admin *a, const struct json_object *document)
{
	const struct json_object *o = jsonin_object(document, "actors");

	printf("%" PRIu64 " places, %zu other daemons", jsonin_u64(o, "places"),
	       jsonin_count(o, "peers"));
	figure_print(o, false,
		     ", copies [copies?on|off]; so far {answered} calls answered, {lost} lost; "
		     "{moves} actors moved, {failed} moves failed, {restarts} actors begun again, "
		     "{died} lost\n");
	if (jsonin_count(o, "actors"))
		TABLE_LIST(a, columns, o, "actors");
}

int cmd_actors(struct admin *a, int argc, char **argv)
{
	const struct asking_view view = {.document = print_actors};

	OPTIONS_PARSE(a, argc, argv, "actors",
		      "Shows each actor: what it does, the place and the process where it is, or "
		      "the other daemon where it lives, and what waits for it.\v"
		      "MOVABLE: it may be moved where memory is short. RESTARTS: how often it is "
		      "still begun again when its process dies. OPTIONS: how copies of it are "
		      "made. COPIES are at other daemons, each with the version of the state that "
		      "it has. Of other users root and the daemon's user see the actors.");
	a->partition = ""; /* all: it is of the host */
	return asking_show(a, SHMSTORE_QUERY_ACTORS, &view);
}
