/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_mem.c: "shmstore-admin mem": what this host, and the memory cgroups that this process is in, may use and use; each term with the file that it
 * is from. Needs neither daemon nor partition. With --daemon: what the daemon watches of it, whose it is, and the thresholds.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "admin.h"
#include "asking.h"
#include "jsonin.h"
#include "jsonout.h"
#include "memjson.h"
#include "memsource.h"
#include "message.h"
#include "options.h"
#include "table.h"

enum {
	KEY_SWAP = 0x100,
	KEY_DAEMON,
};

struct mem_options {
	struct memsource_config source;
	bool daemon;
};

static const struct argp_option option_list[] = {
	{"swap", KEY_SWAP, NULL, 0, "Count swap, in what may be used and in what is", 0},
	{"daemon", KEY_DAEMON, NULL, 0, "Show what the daemon watches: whose the memory is, and the thresholds", 0},
	{NULL, 0, NULL, 0, NULL, 0},
};

static error_t option(int key, char *arg, struct argp_state *state)
{
	struct command_line *line = state->input;
	struct mem_options *o = line->own;

	if (key != KEY_SWAP && key != KEY_DAEMON)
		return options_common(key, arg, state);
	o->source.count_swap = o->source.count_swap || key == KEY_SWAP;
	o->daemon = o->daemon || key == KEY_DAEMON;
	return 0;
}

static void print_json(const struct memsource_reading *r, const struct memsource_config *config)
{
	const struct memlimit_use *use = &r->levels[r->tightest].use;
	struct json_object *o = jsonmake_new();

	jsonmake_text(o, "tightest", r->levels[r->tightest].path);
	memjson_amount(o, "total", use->total);
	memjson_amount(o, "used", use->used);
	jsonmake_flag(o, "swap", config->count_swap);
	memjson_levels(o, r);
	json_print(o);
}

static void add_cell(struct table *t, size_t column, struct amount a, const char *otherwise)
{
	if (a.known)
		table_size(t, column, (uint64_t)a.bytes);
	else
		table_text(t, column, otherwise);
}

static void print_memories(const struct admin *a, const struct memsource_reading *r)
{
	static const struct table_column columns[] = {
		{"MEMORY", 0}, {"TOTAL", TABLE_RIGHT}, {"USED", TABLE_RIGHT}, {"FILL", TABLE_RIGHT}, {"COUNTS", 0}};
	struct table t;

	table_init(&t, a, columns, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < r->n_levels; i++) {
		const struct memlimit_use *use = &r->levels[i].use;

		table_row(&t);
		table_text(&t, 0, r->levels[i].path);
		add_cell(&t, 1, use->total, r->levels[i].version ? "no limit" : "unknown");
		add_cell(&t, 2, use->used, "unknown");
		if (use->total.known && use->used.known)
			table_fill(&t, 3, (uint64_t)use->used.bytes, (uint64_t)use->total.bytes);
		else
			table_text(&t, 3, "-");
		table_text(&t, 4, i == r->tightest ? "the tightest" : "");
	}
	table_finish(&t);
}

static void print_terms(const struct admin *a, const struct memsource_reading *r)
{
	static const struct table_column columns[] = {{"SOURCE", 0}, {"TERM", 0}, {"SIZE", TABLE_RIGHT}};
	struct table t;

	putchar('\n');
	table_init(&t, a, columns, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < r->n_levels; i++)
		for (size_t k = 0; k < r->levels[i].n_terms; k++) {
			const struct memsource_term *term = &r->levels[i].terms[k];

			table_row(&t);
			table_text(&t, 0, r->levels[i].path);
			table_text(&t, 1, term->name);
			add_cell(&t, 2, (struct amount){term->state == MEMSOURCE_READ, term->bytes},
				 term->state == MEMSOURCE_UNLIMITED ? "no limit" : "unknown");
		}
	table_finish(&t);
}

/* ---- what the daemon watches --------------------------------------------------------------------------------------- */

static void print_known(struct table *t, size_t column, const struct json_object *o, const char *member)
{
	if (jsonin_has(o, member))
		table_size(t, column, jsonin_u64(o, member));
	else
		table_text(t, column, "unknown");
}

static void print_sums(const struct admin *a, const struct json_object *m)
{
	static const struct table_column columns[] = {{"OF THE HOST", 0}, {"SIZE", TABLE_RIGHT}, {"WHAT IT IS", 0}};
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
		print_known(&t, 1, m, rows[i][0]);
		table_text(&t, 2, strcmp(rows[i][0], "total") == 0 ? jsonin_text(m, "source") : rows[i][1]);
	}
	table_finish(&t);
}

static void print_processes(const struct admin *a, const struct json_object *m)
{
	static const struct table_column columns[] = {
		{"PID", TABLE_RIGHT}, {"UID", TABLE_RIGHT}, {"PRIVATE", TABLE_RIGHT}, {"DESCENDANTS", TABLE_RIGHT}};
	struct table t;

	if (!jsonin_count(m, "processes"))
		return;
	putchar('\n');
	table_init(&t, a, columns, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < jsonin_count(m, "processes"); i++) {
		const struct json_object *p = jsonin_at(m, "processes", i);

		table_row(&t);
		table_count(&t, 0, jsonin_u64(p, "pid"));
		table_count(&t, 1, jsonin_u64(p, "uid"));
		print_known(&t, 2, p, "private");
		table_count(&t, 3, jsonin_u64(p, "descendants"));
	}
	table_finish(&t);
}

static void print_daemon(const struct json_object *document, void *arg)
{
	const struct json_object *m = jsonin_object(document, "memory");

	if (!jsonin_flag(m, "enabled"))
		return;
	print_sums(arg, m);
	print_processes(arg, m);
}

static int judge_daemon(const struct json_object *document)
{
	if (jsonin_flag(jsonin_object(document, "memory"), "enabled"))
		return ADMIN_OK;
	message_say("mem: the daemon does not watch the host's memory");
	message_hint("set pressure { enabled = yes } in shmstored.conf, and start it again");
	return ADMIN_FAILED;
}

static int show_daemon(struct admin *a)
{
	const struct asking_view view = {.judge = judge_daemon, .document = print_daemon, .arg = a};

	a->partition = ""; /* all: it is of the host */
	return asking_show(a, SHMSTORE_QUERY_MEMORY, &view);
}

int cmd_mem(struct admin *a, int argc, char **argv)
{
	static const struct argp argp =
		OPTIONS_ARGP(option_list, option, "mem",
			     "What this host and the memory cgroups around this process may use and use, term by term, "
			     "with the source of each.\v"
			     "The memory that counts is the tightest: the smallest total of the host and of each "
			     "cgroup up to the root. Page cache "
			     "does not count as used, and tmpfs does. What could not be read is unknown, not 0.");
	struct mem_options own = {0};
	struct command_line line = {.admin = a, .own = &own};
	struct memsource_reading r = MEMSOURCE_NULL;
	char proc[PATH_MAX], cgroup[PATH_MAX];
	int status = ADMIN_OK, err;

	options_parse(&argp, &line, argc, argv);
	if (own.daemon)
		return show_daemon(a);
	snprintf(proc, sizeof(proc), "%s/proc", a->root);
	snprintf(cgroup, sizeof(cgroup), "%s/sys/fs/cgroup", a->root);
	own.source.proc = proc;
	own.source.cgroup = cgroup;
	err = memsource_read(&own.source, &r);
	if (err < 0)
		return message_error("mem", err);
	if (a->json) {
		print_json(&r, &own.source);
	} else {
		print_memories(a, &r);
		print_terms(a, &r);
	}
	if (!r.levels[r.tightest].use.total.known || !r.levels[r.tightest].use.used.known) {
		status = message_fail(r.levels[r.tightest].path,
				      "what is used of how much cannot be told: some terms are unknown");
		message_hint("they are listed; as a rule the file is missing, or this user may not read it");
	}
	memsource_deinit(&r);
	return status;
}
