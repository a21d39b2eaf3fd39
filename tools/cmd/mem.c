/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_mem.c: "shmstore-admin mem": what this host, and the memory cgroups that this process is in, may use and use; each term with the file that it
 * is from. Needs neither daemon nor partition.
 */
#include <limits.h>
#include <stdio.h>

#include "admin.h"
#include "jsonout.h"
#include "memsource.h"
#include "message.h"
#include "options.h"
#include "table.h"

enum {
	KEY_SWAP = 0x100
};

static const struct argp_option option_list[] = {
	{"swap", KEY_SWAP, NULL, 0, "Count swap, in what may be used and in what is", 0},
	{NULL, 0, NULL, 0, NULL, 0},
};

static error_t option(int key, char *arg, struct argp_state *state)
{
	struct command_line *line = state->input;
	struct memsource_config *config = line->own;

	if (key != KEY_SWAP)
		return options_common(key, arg, state);
	config->count_swap = true;
	return 0;
}

static void add_amount(struct json_object *o, const char *name, struct amount a)
{
	if (a.known)
		jsonmake_u64(o, name, (uint64_t)a.bytes);
	else
		jsonmake_null(o, name);
}

static struct json_object *level_json(const struct memsource_level *l, bool tightest)
{
	static const char *const states[] = {"read", "unlimited", "unknown"};
	struct json_object *o = jsonmake_new(), *terms;

	jsonmake_text(o, "source", l->path);
	if (l->version)
		jsonmake_u64(o, "cgroup_version", (uint64_t)l->version);
	else
		jsonmake_null(o, "cgroup_version");
	add_amount(o, "total", l->use.total);
	add_amount(o, "used", l->use.used);
	jsonmake_flag(o, "tightest", tightest);
	terms = jsonmake_child(o, "terms", jsonmake_new_list());
	for (size_t i = 0; i < l->n_terms; i++) {
		const struct memsource_term *t = &l->terms[i];
		struct json_object *term = jsonmake_append(terms, jsonmake_new());

		jsonmake_text(term, "term", t->name);
		add_amount(term, "size", (struct amount){t->state == MEMSOURCE_READ, t->bytes});
		jsonmake_text(term, "state", states[t->state]);
	}
	return o;
}

static void print_json(const struct memsource_reading *r, const struct memsource_config *config)
{
	const struct memlimit_use *use = &r->levels[r->tightest].use;
	struct json_object *o = jsonmake_new(), *levels;

	jsonmake_text(o, "tightest", r->levels[r->tightest].path);
	add_amount(o, "total", use->total);
	add_amount(o, "used", use->used);
	jsonmake_flag(o, "swap", config->count_swap);
	levels = jsonmake_child(o, "memories", jsonmake_new_list());
	for (size_t i = 0; i < r->n_levels; i++)
		jsonmake_append(levels, level_json(&r->levels[i], i == r->tightest));
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

int cmd_mem(struct admin *a, int argc, char **argv)
{
	static const struct argp argp =
		OPTIONS_ARGP(option_list, option, "mem",
			     "What this host and the memory cgroups around this process may use and use, term by term, "
			     "with the source of each.\v"
			     "The memory that counts is the tightest: the smallest total of the host and of each "
			     "cgroup up to the root. Page cache "
			     "does not count as used, and tmpfs does. What could not be read is unknown, not 0.");
	struct memsource_config config = {0};
	struct command_line line = {.admin = a, .own = &config};
	struct memsource_reading r = MEMSOURCE_NULL;
	char proc[PATH_MAX], cgroup[PATH_MAX];
	int status = ADMIN_OK, err;

	options_parse(&argp, &line, argc, argv);
	snprintf(proc, sizeof(proc), "%s/proc", a->root);
	snprintf(cgroup, sizeof(cgroup), "%s/sys/fs/cgroup", a->root);
	config.proc = proc;
	config.cgroup = cgroup;
	err = memsource_read(&config, &r);
	if (err < 0)
		return message_error("mem", err);
	if (a->json) {
		print_json(&r, &config);
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
