/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_workers.c: "shmstore-admin workers": the stores that the daemon knows, by what they take of the memory; or the same by user or by
 * label. Books (LINKED, PSS, USS, POOL) are of the last survey; a store that came since has only what its ledger says.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "asking.h"
#include "jsonin.h"
#include "message.h"
#include "options.h"
#include "table.h"

enum {
	OPTION_SORT = 0x100,
	OPTION_BY
};

/* The keys to sort by: members of a store's, user's or label's object. */
static const char *const sorts[] = {"linked", "pss", "uss", "pool", "mapped", "pid", "name"};
#define N_SORTS (sizeof(sorts) / sizeof(sorts[0]))

enum by {
	BY_STORE,
	BY_USER,
	BY_LABEL,
	N_BY
};
static const char *const by_names[N_BY] = {"store", "user", "label"};
static const struct {
	const char *list, *name;
} bys[N_BY] = {{"workers", "name"}, {"users", "user"}, {"labels", "label"}};

struct workers {
	const struct admin *admin;
	const char *sort;
	enum by by;
};

#define COLUMNS(X)                          \
	X(NAME, "STORE", 0)                 \
	X(PID, "PID", TABLE_RIGHT)          \
	X(USER, "USER", 0)                  \
	X(STATE, "STATE", 0)                \
	X(OBJECTS, "OBJECTS", TABLE_RIGHT)  \
	X(LINKED, "LINKED", TABLE_RIGHT)    \
	X(PSS, "PSS", TABLE_RIGHT)          \
	X(USS, "USS", TABLE_RIGHT)          \
	X(POOL, "POOL", TABLE_RIGHT)        \
	X(MAPPED, "MAPPED", TABLE_RIGHT)    \
	X(CREDIT, "CREDIT", TABLE_RIGHT)    \
	X(ASKED, "ASKED BACK", TABLE_RIGHT) \
	X(LABEL, "LABEL", TABLE_TRUNC)
TABLE_COLUMNS(columns, COLUMNS, N_COLUMNS);

/* ---- sorting ---- */

struct order {
	const char *member;
	const char *name; /* of equal ones */
};

/* The books' value, or, for a store that came after them, the ledger's. */
static uint64_t value_of(const struct json_object *o, const char *member)
{
	if (jsonin_has(o, member))
		return jsonin_u64(o, member);
	return jsonin_u64(jsonin_object(o, "ledger"), member);
}

static int compare(const void *x, const void *y, void *arg)
{
	const struct json_object *a = *(struct json_object *const *)x, *b = *(struct json_object *const *)y;
	const struct order *order = arg;

	if (strcmp(order->member, "name") != 0) {
		uint64_t one = value_of(a, order->member), two = value_of(b, order->member);
		if (one != two)
			return (one < two) - (one > two);
	}
	return strcmp(jsonin_text(a, order->name), jsonin_text(b, order->name));
}

/* The list called name of p, sorted: its items, still p's. The array is to be freed. */
static const struct json_object **sorted(const struct workers *w, const struct json_object *p, size_t *ret_n)
{
	size_t n = jsonin_count(p, bys[w->by].list);
	struct order order = {w->sort, bys[w->by].name};
	const struct json_object **items = calloc(n + 1, sizeof(const struct json_object *));

	if (!items)
		message_no_memory();
	for (size_t i = 0; i < n; i++)
		items[i] = jsonin_at(p, bys[w->by].list, i);
	qsort_r(items, n, sizeof(const struct json_object *), compare, &order);
	*ret_n = n;
	return items;
}

/* ---- tables ---- */

static void print_state(struct table *t, const struct json_object *o)
{
	if (jsonin_flag(o, "alive")) {
		table_text(t, STATE, jsonin_flag(o, "registered") ? "registered" : "alive");
		table_color(t, STATE, "green");
	} else if (!jsonin_has(o, "alive")) {
		table_text(t, STATE, "unknown");
	} else {
		table_text(t, STATE, jsonin_flag(o, "keep") ? "kept" : "dead");
		table_color(t, STATE, jsonin_flag(o, "keep") ? "cyan" : "red");
	}
}

static void print_book(struct table *t, size_t column, const struct json_object *o, const char *member)
{
	if (jsonin_has(o, member) || jsonin_has(jsonin_object(o, "ledger"), member))
		table_size(t, column, value_of(o, member));
	else
		table_text(t, column, "-");
}

static void print_store(struct table *t, const struct json_object *o)
{
	const struct json_object *credit = jsonin_object(o, "credit");

	table_row(t);
	table_text(t, NAME, *jsonin_text(o, "name") ? jsonin_text(o, "name") : jsonin_text(o, "path"));
	table_printf(t, PID, "%" PRId64, jsonin_i64(o, "pid"));
	table_text(t, USER, jsonin_text(o, "user"));
	print_state(t, o);
	table_count(t, OBJECTS, value_of(o, "objects"));
	print_book(t, LINKED, o, "linked");
	print_book(t, PSS, o, "pss");
	print_book(t, USS, o, "uss");
	print_book(t, POOL, o, "pool");
	table_size(t, MAPPED, jsonin_u64(o, "mapped"));
	if (!credit)
		table_text(t, CREDIT, "-");
	else if (jsonin_flag(credit, "unlimited"))
		table_text(t, CREDIT, "no limit");
	else
		table_size(t, CREDIT, jsonin_u64(credit, "outstanding"));
	if (jsonin_u64(o, "asked")) {
		table_size(t, ASKED, jsonin_u64(o, "asked"));
		table_color(t, ASKED, "yellow");
	}
	table_text(t, LABEL, jsonin_text(o, "label"));
}

static void print_stores(const struct workers *w, const struct json_object *p)
{
	size_t n;
	const struct json_object **items = sorted(w, p, &n);
	struct table t;

	table_init(&t, w->admin, columns, N_COLUMNS);
	for (size_t i = 0; i < n; i++)
		print_store(&t, items[i]);
	table_finish(&t);
	if (!n)
		puts("no stores");
	if (jsonin_u64(p, "left_out"))
		printf("... and %" PRIu64 " more\n", jsonin_u64(p, "left_out"));
	free(items);
}

static void print_groups(const struct workers *w, const struct json_object *p)
{
	static const struct table_column group_columns[N_BY][7] = {
		[BY_USER] = {{"USER", 0},
			     {"STORES", TABLE_RIGHT},
			     {"LINKED", TABLE_RIGHT},
			     {"PSS", TABLE_RIGHT},
			     {"USS", TABLE_RIGHT},
			     {"POOL", TABLE_RIGHT},
			     {"GHOSTS", TABLE_RIGHT}},
		[BY_LABEL] = {{"LABEL", 0},
			      {"STORES", TABLE_RIGHT},
			      {"LINKED", TABLE_RIGHT},
			      {"PSS", TABLE_RIGHT},
			      {"USS", TABLE_RIGHT},
			      {"POOL", TABLE_RIGHT},
			      {"", TABLE_HIDDEN}},
	};
	static const char *const members[] = {"linked", "pss", "uss", "pool", "ghosts"};
	size_t n;
	const struct json_object **items = sorted(w, p, &n);
	struct table t;

	if (!jsonin_u64(p, "survey_sequence"))
		puts("not surveyed yet");
	table_init(&t, w->admin, group_columns[w->by], 7);
	for (size_t i = 0; i < n; i++) {
		table_row(&t);
		table_text(&t, 0, jsonin_text(items[i], bys[w->by].name));
		table_count(&t, 1, jsonin_u64(items[i], "stores"));
		for (size_t m = 0; m < sizeof(members) / sizeof(members[0]); m++)
			table_size(&t, m + 2, jsonin_u64(items[i], members[m]));
	}
	table_finish(&t);
	free(items);
}

static void print_partition(const struct json_object *p, void *arg)
{
	const struct workers *w = arg;

	if (w->by == BY_STORE)
		print_stores(w, p);
	else
		print_groups(w, p);
}

/* ---- the command ---- */

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct command_line *line = state->input;
	struct workers *w = line->own;

	switch (key) {
	case OPTION_SORT:
		w->sort = sorts[options_one_of(state, "--sort", arg, sorts, N_SORTS)];
		return 0;
	case OPTION_BY:
		w->by = (enum by)options_one_of(state, "--by", arg, by_names, N_BY);
		return 0;
	default:
		return options_common(key, arg, state);
	}
}

int cmd_workers(struct admin *a, int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"sort", OPTION_SORT, "COLUMN", 0, "linked (default), pss, uss, pool, mapped, pid or name", 0},
		{"by", OPTION_BY, "WHAT", 0, "add up by store (default), user or label", 0},
		{NULL, 0, NULL, 0, NULL, 0},
	};
	static const struct argp argp = OPTIONS_ARGP(
		options, parse, "workers",
		"Shows the stores that the daemon knows, and what they take.\v"
		"LINKED, PSS, USS and POOL are of the last survey, the rest of the last second. CREDIT is what a "
		"store may still take without asking, ASKED BACK what the daemon wants back from it. Who is neither "
		"root nor the daemon's user sees his own stores. Columns are sorted downwards, names upwards; with "
		"--json nothing is sorted or left out.");
	struct workers w = {.admin = a, .sort = sorts[0]};
	struct command_line line = {.admin = a, .own = &w};
	const struct asking_view view = {.partition = print_partition, .arg = &w};

	options_parse(&argp, &line, argc, argv);
	return asking_show(a, SHMSTORE_QUERY_WORKERS, &view);
}
