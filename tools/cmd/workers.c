/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_workers.c: "shmstore-admin workers": the stores that the daemon knows, by what they take of
 * the memory; or the same by user or by label. Books (LINKED, PSS, USS, POOL) are of the last
 * survey; a store that came since has only what its ledger says.
 */
#include <stdio.h>
#include <stdlib.h>

#include "asking.h"
#include "jsonin.h"
#include "options.h"
#include "table.h"

/* The keys to sort by: members of a store's, user's or label's object. */
static const char *const sorts[] = {"linked", "pss", "uss", "pool", "mapped", "pid", "name"};
#define N_SORTS (sizeof(sorts) / sizeof(sorts[0]))
/* The members that they are: the books', or, for a store that came after them, the ledger's. */
static const char *const sort_members[N_SORTS] = {"-linked|ledger.linked", "-pss",    "-uss",
						  "-pool|ledger.pool",     "-mapped", "-pid"};

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
	size_t sort; /* of sorts */
	size_t by;   /* enum by */
};

/* ---- tables ---- */

/* A store that came after the survey has no books, and its ledger's figures instead. */
static const struct table_column stores[] = {
	{"STORE", FIGURE_TEXT, "name|path"},
	{"PID", FIGURE_COUNT, "pid"},
	{"USER", FIGURE_TEXT, "user"},
	{"STATE", .show = table_store_state},
	{"OBJECTS", FIGURE_COUNT, "objects|ledger.objects"},
	{"LINKED", FIGURE_SIZE, "linked|ledger.linked", "-"},
	{"PSS", FIGURE_SIZE, "pss", "-"},
	{"USS", FIGURE_SIZE, "uss", "-"},
	{"POOL", FIGURE_SIZE, "pool|ledger.pool", "-"},
	{"MAPPED", FIGURE_SIZE, "mapped"},
	{"PUT B/s", FIGURE_SIZE, "put_bytes_per_s"},
	{"CREDIT", TABLE_RIGHT, "[credit.unlimited?no limit|[credit?{credit.outstanding:size}|-]]"},
	{"ASKED BACK", FIGURE_SIZE | TABLE_UNLESS_0 | TABLE_WARN, "asked"},
	{"LABEL", TABLE_TRUNC, "label"},
};

static const struct table_column groups[] = {
	{"USER", FIGURE_TEXT, "user"},      {"LABEL", FIGURE_TEXT, "label"},
	{"STORES", FIGURE_COUNT, "stores"}, {"LINKED", FIGURE_SIZE, "linked"},
	{"PSS", FIGURE_SIZE, "pss"},        {"USS", FIGURE_SIZE, "uss"},
	{"POOL", FIGURE_SIZE, "pool"},      {"GHOSTS", FIGURE_SIZE, "ghosts"},
};

static void print_list(const struct admin *a, const struct json_object *p)
{
	const struct workers *w = a->own;
	const char *const name = bys[w->by].name, *const by = sort_members[w->sort];
	const char *const order[] = {by ? by : name, name, NULL};
	size_t n;
	const struct json_object **items = jsonin_sorted(p, bys[w->by].list, order, &n);
	struct table t;

	if (w->by == BY_STORE)
		table_init(&t, a, stores, sizeof(stores) / sizeof(stores[0]));
	else
		table_init(&t, a, groups, sizeof(groups) / sizeof(groups[0]));
	table_hide(&t, w->by == BY_USER ? "LABEL" : w->by == BY_LABEL ? "USER" : "");
	if (w->by == BY_LABEL)
		table_hide(&t, "GHOSTS");
	for (size_t i = 0; i < n; i++)
		table_object(&t, items[i]);
	table_finish(&t);
	free(items);
}

static void print_partition(const struct admin *a, const struct json_object *p)
{
	const struct workers *w = a->own;

	if (w->by != BY_STORE && !jsonin_u64(p, "survey_sequence"))
		puts("not surveyed yet");
	print_list(a, p);
	if (w->by == BY_STORE && !jsonin_count(p, "workers"))
		puts("no stores");
	if (w->by == BY_STORE && jsonin_u64(p, "left_out"))
		figure_print(p, false, "... and {left_out} more\n");
}

/* ---- the command ---- */

int cmd_workers(struct admin *a, int argc, char **argv)
{
	typedef struct workers OF;
	static const struct options_row options[] = {
		{"sort", 0, "COLUMN", "linked (default), pss, uss, pool, mapped, pid or name",
		 OPTIONS_WORD, offsetof(OF, sort), .words = sorts, .n_words = N_SORTS},
		{"by", 0, "WHAT", "add up by store (default), user or label", OPTIONS_WORD,
		 offsetof(OF, by), .words = by_names, .n_words = N_BY},
		{NULL},
	};
	struct workers w = {0};
	const struct asking_view view = {.partition = print_partition};

	OPTIONS_PARSE(a, argc, argv, "workers",
		      "Shows the stores that the daemon knows, and what they take.\v"
		      "LINKED, PSS, USS and POOL are of the last survey, the rest of the last "
		      "second. CREDIT is what a store may still take without asking, ASKED BACK "
		      "what the daemon wants back from it. Who is neither root nor the daemon's "
		      "user sees his own stores. Columns are sorted downwards, names upwards; with "
		      "--json nothing is sorted or left out.",
		      .options = options, .own = &w);
	return asking_show(a, SHMSTORE_QUERY_WORKERS, &view);
}
