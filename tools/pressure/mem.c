/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_mem.c: "shmstore-admin mem": what this host, and the memory cgroups that this process is in,
 * may use and use; each term with the file that it is from. Needs neither daemon nor partition.
 * With --daemon: what the daemon watches of it, whose it is, and the thresholds.
 */
#include <stdio.h>
#include <string.h>

#include "admin.h"
#include "asking.h"
#include "jsonin.h"
#include "jsonout.h"
#include "message.h"
#include "options.h"
#include "sysroot.h"
#include "table.h"

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

static struct json_object *make_document(const struct memsource_reading *r, bool swap)
{
	const struct memlimit_use *use = &r->levels[r->tightest].use;
	struct json_object *o = jsonmake_new();

	jsonmake_text(o, "tightest", r->levels[r->tightest].path);
	memjson_amount(o, "total", use->total);
	memjson_amount(o, "used", use->used);
	jsonmake_flag(o, "swap", swap);
	memjson_levels(o, r);
	return o;
}

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

static int show_daemon(struct admin *a)
{
	const struct asking_view view = {.watched = "memory",
					 .unless =
						 "mem: the daemon does not watch the host's memory",
					 .document = print_daemon};

	a->partition = ""; /* all: it is of the host */
	return asking_show(a, SHMSTORE_QUERY_MEMORY, &view);
}

int cmd_mem(struct admin *a, int argc, char **argv)
{
	struct mem own = {0};
	struct memsource_reading r = MEMSOURCE_NULL;
	int status = ADMIN_OK, err;

	OPTIONS_PARSE(a, argc, argv, "mem",
		      "What this host and the memory cgroups around this process may use and use, "
		      "term by term, with the source of each.\v"
		      "The memory that counts is the tightest: the smallest total of the host and "
		      "of each cgroup up to the root. Page cache does not count as used, and tmpfs "
		      "does. What could not be read is unknown, not 0.",
		      .options = options, .own = &own);
	if (own.daemon)
		return show_daemon(a);
	err = sysroot_memory(a, own.swap, &r);
	if (err < 0)
		return message_error("mem", err);
	json_show(a, make_document(&r, own.swap), print_text);
	if (!r.levels[r.tightest].use.total.known || !r.levels[r.tightest].use.used.known) {
		status = message_fail(
			r.levels[r.tightest].path,
			"what is used of how much cannot be told: some terms are unknown");
		message_hint("they are listed; as a rule the file is missing, or this user may not "
			     "read it");
	}
	memsource_deinit(&r);
	return status;
}
