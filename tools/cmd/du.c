/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_du.c: "shmstore-admin du": what each store holds, from the file system. linked counts an
 * object that several stores hold in each of them, pss divides it by its links, uss counts only
 * what nobody else links: what would be freed.
 */
#include <errno.h>
#include <shmstore/inspect.h>
#include <stdio.h>

#include "admin.h"
#include "fields.h"
#include "jsonin.h"
#include "jsonout.h"
#include "message.h"
#include "opening.h"
#include "options.h"
#include "progress.h"
#include "table.h"
#include "tierstate.h"

static void show_state(struct table *t, size_t column, const struct json_object *s)
{
	if (jsonin_has(s, "readable"))
		table_store_state(t, column, s);
	else
		table_text(t, column, "each once"); /* the total's */
}

static void show_mapped(struct table *t, size_t column, const struct json_object *s)
{
	if (jsonin_has(s, "readable"))
		table_size(t, column, jsonin_flag(s, "alive") ? jsonin_u64(s, "mapped") : 0);
}

static const struct table_column columns[] = {
	{"STORE", FIGURE_TEXT, "name|path"},
	/* a kept store that was closed is nobody's */
	{"PID", FIGURE_COUNT | TABLE_UNLESS_0, "pid", ""},
	{"STATE", .show = show_state},
	{"OBJECTS", FIGURE_COUNT, "objects"},
	{"LINKED", FIGURE_SIZE, "linked"},
	{"PSS", FIGURE_SIZE, "pss"},
	{"USS", FIGURE_SIZE, "uss"},
	{"LEASED", FIGURE_SIZE, "leased"},
	{"POOL", FIGURE_SIZE, "pool"},
	{"STRANDED", FIGURE_SIZE, "stranded"},
	{"DEMOTED", FIGURE_SIZE, "demoted"},
	{"MAPPED", TABLE_RIGHT, .show = show_mapped},
	{"AGE", FIGURE_AGO, "created", ""},
	{"LABEL", TABLE_TRUNC, "label"},
};
#define N_COLUMNS (sizeof(columns) / sizeof(columns[0]))
/* The words of --sort, column by column. */
static const char *const sorts[N_COLUMNS] = {"name",    "pid",    NULL,     "objects", "linked",
					     "pss",     "uss",    "leased", "pool",    "stranded",
					     "demoted", "mapped", "age"};

#define OF struct shmstore_store_books
static const struct field of_books[] = {
	NUMBER(objects), NUMBER(leases), SAME(linked),    SAME(pss),
	SAME(uss),       SAME(leased),   SAME(pool),      SAME(stranded),
	SAME(metadata),  SAME(demoted),  SAME(n_demoted), SAME(n_clean),
};
#undef OF

struct du {
	const struct admin *admin;
	struct json_object *stores; /* with --json */
	struct table table;         /* without */
	size_t sort;                /* column */
	struct shmstore_store_books sum;
	uint64_t n_unreadable, n_unknown;
};

static struct json_object *describe(const struct shmstore_store_books *b)
{
	const struct shmstore_store_info *s = b->store;
	struct json_object *o = jsonmake_new();

	fields_of(o, s, PROSE(name), PROSE(path), SAME(readable), SAME(pid), PLACE("alive"),
		  SAME(keep), SAME(uid), PROSE(label), PROSE(address));
	if (!s->readable)
		jsonmake_null(o, "pid");
	if (s->alive != SHMSTORE_ALIVE_UNKNOWN)
		jsonmake_flag(o, "alive", s->alive == SHMSTORE_ALIVE);
	fields_add(o, of_books, b);
	fields_of(o, s, FIELD(counters.mapped_bytes, "mapped"),
		  FIELD_AS(FIELD_REAL_NS, created_ns, "created"));
	return o;
}

static void add_row(struct du *du, const struct json_object *o, const struct shmstore_store_info *s)
{
	if (s->readable) {
		table_object(&du->table, o);
		return;
	}
	table_row(&du->table);
	table_text(&du->table, 0, s->name[0] ? s->name : s->path);
	table_printf(&du->table, 2, "of user %u", s->uid);
}

static int add(const struct shmstore_store_books *b, void *arg)
{
	struct du *du = arg;
	struct shmstore_store_books *sum = &du->sum;
	struct json_object *o = describe(b);

	if (du->admin->json) {
		jsonmake_append(du->stores, o);
	} else {
		add_row(du, o, b->store);
		jsonin_free(o);
	}
	du->n_unreadable += !b->store->readable;
	du->n_unknown += b->store->readable && b->store->alive == SHMSTORE_ALIVE_UNKNOWN;
	sum->pss += b->pss;
	sum->uss += b->uss;
	sum->leased += b->leased;
	sum->pool += b->pool;
	sum->stranded += b->stranded;
	sum->demoted += b->demoted;
	sum->n_demoted += b->n_demoted;
	sum->n_clean += b->n_clean;
	sum->n_objects += b->n_objects;
	progress_set(sum->n_objects, 0);
	return 0;
}

static void finish(struct du *du, const struct shmstore_books_total *total)
{
	struct json_object *o = jsonmake_new();

	if (du->admin->json) {
		jsonmake_child(o, "stores", du->stores);
		jsonmake_u64(o, "total_linked", total->linked);
		jsonmake_u64(o, "total_stores", total->n_stores);
		jsonmake_u64(o, "total_objects", total->n_objects);
		fields_of(o, &du->sum, FIELD(pss, "total_pss"), FIELD(uss, "total_uss"),
			  FIELD(leased, "total_leased"), FIELD(pool, "total_pool"),
			  FIELD(stranded, "total_stranded"), FIELD(demoted, "total_demoted"),
			  FIELD(n_demoted, "total_n_demoted"), FIELD(n_clean, "total_n_clean"));
		json_print(o);
		return;
	}
	table_sort(&du->table, du->sort);
	if (total->n_stores || du->table.n_lines) {
		du->sum.linked = total->linked;
		du->sum.n_objects = total->n_objects;
		jsonmake_text(o, "name", "total");
		fields_add(o, of_books, &du->sum);
		table_object(&du->table, o);
		table_row_color(&du->table, "bold");
	} else {
		puts("no stores");
	}
	table_finish(&du->table);
	jsonin_free(o);
}

int cmd_du(struct admin *a, int argc, char **argv)
{
	typedef struct du OF;
	static const struct options_row options[] = {
		{"sort", 's', "COLUMN",
		 "name (default), objects, linked, pss, uss, leased, pool, stranded, demoted, "
		 "mapped, age or pid",
		 OPTIONS_WORD, offsetof(OF, sort), .words = sorts, .n_words = N_COLUMNS},
		{NULL},
	};
	struct du du = {.admin = a};
	struct command_line line = OPTIONS_LINE(
		a, "du",
		"What each store holds.\v"
		"LINKED is all that a store links; an object of several stores counts in each of "
		"them, but once in the total. PSS shares it out by links and adds up. USS is what "
		"would be freed if the store went now. LEASED are leases whose object it links no "
		"longer. POOL is memory kept for the next puts, STRANDED the part of it in pages "
		"of which small objects have the rest. MAPPED are live views, AGE is that of the "
		"store. On a partition with a disk tier, DEMOTED is what a store's objects there "
		"take in memory when they come back; until then they count in OBJECTS only.",
		.options = options, .own = &du);
	struct shmstore_books_total total = {.size = sizeof(total)};
	_partition_ struct shmstore_partition *p = NULL;
	char tier[PATH_MAX];

	options_parse(&line, argc, argv);
	int status = opening_partition(a, &p);
	if (status)
		return status;
	du.stores = table_or_list(&du.table, a, columns, N_COLUMNS);
	if (!a->json && !tierstate_directory(p, tier))
		table_hide(&du.table, "DEMOTED");
	du.table.hold = true;
	progress_begin("du");
	int r = shmstore_partition_books(p, add, &du, &total);
	progress_end();
	if (r < 0) {
		status = message_detail(shmstore_partition_path(p), r);
	} else {
		finish(&du, &total);
		if (du.n_unreadable) {
			status = message_fail(shmstore_partition_path(p),
					      "%llu stores could not be read",
					      (unsigned long long)du.n_unreadable);
			message_hint("run this as root to see them");
		}
		if (du.n_unknown)
			status = message_fail(shmstore_partition_path(p),
					      "of %llu stores it cannot be told whether their "
					      "owners live: their locks cannot be tried%s",
					      (unsigned long long)du.n_unknown,
					      message_refused(-EPERM));
	}
	return status;
}
