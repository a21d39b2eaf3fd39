/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_du.c: "shmstore-admin du": what each store holds, from the file system. linked counts an
 * object that several stores hold in each of them, pss divides it by its links, uss counts only
 * what nobody else links: what would be freed.
 */
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <shmstore/inspect.h>
#include <stdio.h>

#include "admin.h"
#include "fields.h"
#include "jsonin.h"
#include "opening.h"
#include "options.h"
#include "table.h"

static void show_state(struct table *t, size_t column, const struct json_object *s)
{
	if (jsonin_has(s, "readable"))
		table_store_state(t, column, s);
	else
		table_text(t, column, "each once"); /* the total's */
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
	{"MAPPED", TABLE_RIGHT, "[has readable?[alive?{mapped:size}|0]]"},
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

/* The members that the total is the sum of. */
static const char *const summed[] = {"pss",      "uss",     "leased",    "pool",
				     "stranded", "demoted", "n_demoted", "n_clean"};
#define N_SUMMED (sizeof(summed) / sizeof(summed[0]))

struct du {
	struct json_object *stores;
	size_t sort; /* column */
	uint64_t n_objects, n_unreadable, n_unknown;
};

static int add(const struct shmstore_store_books *b, void *arg)
{
	struct du *du = arg;
	const struct shmstore_store_info *s = b->store;
	struct json_object *o = jsonmake_append(du->stores, jsonmake_new());

	fields_of(o, s, PROSE(name), PROSE(path), SAME(readable), SAME(pid), PLACE("alive"),
		  SAME(keep), SAME(uid), PROSE(label), PROSE(address));
	if (!s->readable)
		jsonmake_null(o, "pid");
	if (s->alive != SHMSTORE_ALIVE_UNKNOWN)
		jsonmake_flag(o, "alive", s->alive == SHMSTORE_ALIVE);
	fields_add(o, of_books, b);
	fields_of(o, s, FIELD(counters.mapped_bytes, "mapped"),
		  FIELD_AS(FIELD_REAL_NS, created_ns, "created"));
	du->n_unreadable += !s->readable;
	du->n_unknown += s->readable && s->alive == SHMSTORE_ALIVE_UNKNOWN;
	du->n_objects += b->n_objects;
	progress_set(du->n_objects, 0);
	return 0;
}

/* Adds the sums to the document. The total, as a store's object has it. */
static struct json_object *add_total(struct json_object *o,
				     const struct shmstore_books_total *books)
{
	struct json_object *total = jsonmake_new();
	char name[32];

	jsonmake_text(total, "name", "total");
	jsonmake_u64(total, "linked", books->linked);
	jsonmake_u64(total, "objects", books->n_objects);
	fields_of(o, books, FIELD(linked, "total_linked"), FIELD(n_stores, "total_stores"),
		  FIELD(n_objects, "total_objects"));
	for (size_t i = 0; i < N_SUMMED; i++) {
		uint64_t sum = 0;

		for (size_t k = 0; k < jsonin_count(o, "stores"); k++)
			sum += jsonin_u64(jsonin_at(o, "stores", k), summed[i]);
		snprintf(name, sizeof(name), "total_%s", summed[i]);
		jsonmake_u64(o, name, sum);
		jsonmake_u64(total, summed[i], sum);
	}
	return total;
}

static void add_row(struct table *t, const struct json_object *o)
{
	const char *name = jsonin_text(o, "name");

	if (jsonin_flag(o, "readable")) {
		table_object(t, o);
		return;
	}
	table_row(t);
	table_text(t, 0, *name ? name : jsonin_text(o, "path"));
	table_printf(t, 2, "of user %" PRIu64, jsonin_u64(o, "uid"));
}

static void print_text(const struct admin *a, const struct json_object *o,
		       const struct json_object *total, size_t sort, bool tier)
{
	struct table t;

	table_init(&t, a, columns, N_COLUMNS);
	if (!tier)
		table_hide(&t, "DEMOTED");
	t.hold = true;
	for (size_t i = 0; i < jsonin_count(o, "stores"); i++)
		add_row(&t, jsonin_at(o, "stores", i));
	table_sort(&t, sort);
	if (t.n_lines || jsonin_u64(o, "total_stores")) {
		table_object(&t, total);
		table_row_bold(&t);
	} else {
		puts("no stores");
	}
	table_finish(&t);
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
	struct du du = {0};
	struct shmstore_books_total books = {.size = sizeof(books)};
	char tier[PATH_MAX];
	int status = ADMIN_OK;

	OPTIONS_PARSE(
		a, argc, argv, "du",
		"What each store holds.\v"
		"LINKED is all that a store links; an object of several stores counts in each of "
		"them, but once in the total. PSS shares it out by links and adds up. USS is what "
		"would be freed if the store went now. LEASED are leases whose object it links no "
		"longer. POOL is memory kept for the next puts, STRANDED the part of it in pages "
		"of which small objects have the rest. MAPPED are live views, AGE is that of the "
		"store. On a partition with a disk tier, DEMOTED is what a store's objects there "
		"take in memory when they come back; until then they count in OBJECTS only.",
		.options = options, .own = &du);
	_partition_ struct shmstore_partition *p = opening_partition(a);
	const char *path = shmstore_partition_path(p);
	_json_ struct json_object *o = jsonmake_new();
	du.stores = jsonmake_child(o, "stores", jsonmake_new_list());
	progress_begin("du");
	int r = shmstore_partition_books(p, add, &du, &books);
	progress_end();
	if (r < 0)
		return message_detail(path, r);
	_json_ struct json_object *total = add_total(o, &books);
	if (a->json)
		json_print(json_object_get(o));
	else
		print_text(a, o, total, du.sort, tierstate_directory(p, tier));
	if (du.n_unreadable) {
		status =
			message_fail(path, "%" PRIu64 " stores could not be read", du.n_unreadable);
		message_hint("run this as root to see them");
	}
	if (du.n_unknown)
		status =
			message_fail(path,
				     "of %" PRIu64 " stores it cannot be told whether their owners "
				     "live: their locks cannot be tried%s",
				     du.n_unknown, message_refused(-EPERM));
	return status;
}

/* ---- df -------------------------------------------------------------------------------------- */

/*
 * How full the partition is, and its disk tier. Space is the word of statfs; stores and objects are
 * counted.
 */

static const struct table_column df_columns[] = {
	{"PARTITION", FIGURE_TEXT, "partition"},
	{"HUGE", 0, "[tmpfs?[huge?{huge}|?]|on disk]"},
	{"SIZE", FIGURE_SIZE | TABLE_UNLESS_0, "size", "unlimited"},
	{"USED", FIGURE_SIZE, "used"},
	{"AVAILABLE", TABLE_RIGHT, "[size?{available:size}|-]"},
	{"FILL", TABLE_FILL, "used/size"},
	{"STORES", FIGURE_COUNT, "stores"},
	{"OBJECTS", FIGURE_COUNT, "objects"},
	{"LEASES", FIGURE_COUNT, "leases"},
	{"INODES FREE", TABLE_RIGHT, "[inodes_size?{inodes_free}|unlimited]"},
	{"FILL", TABLE_FILL, "inodes_used/inodes_size"},
};

static const struct table_column tier_columns[] = {
	{"TIER", FIGURE_TEXT, "path"},
	{"LIMIT", FIGURE_SIZE | TABLE_UNLESS_0, "max", "the disk"},
	{"USED", FIGURE_SIZE, "used"},
	{"AVAILABLE", FIGURE_SIZE, "available"},
	{"FILL", TABLE_FILL, "used/used+available"},
	{"DEMOTED", FIGURE_SIZE, "demoted"},
	{"IN MEMORY TOO", FIGURE_SIZE, "clean"},
	{"GARBAGE", FIGURE_SIZE, "orphans"},
};

static void print_df(const struct admin *a, const struct json_object *o)
{
	TABLE_ONE(a, df_columns, o);
	if (!jsonin_has(o, "tier"))
		return;
	putchar('\n');
	TABLE_ONE(a, tier_columns, jsonin_object(o, "tier"));
}

int cmd_df(struct admin *a, int argc, char **argv)
{
	struct shmstore_partition_info info = {.size = sizeof(info)};
	struct shmstore_usage usage;
	static struct shmstore_tier_info tier;

	OPTIONS_PARSE(a, argc, argv, "df",
		      "How full the partition is: space, inodes, stores, objects; and its disk "
		      "tier, where it has one.");
	_partition_ struct shmstore_partition *p = opening_partition(a);
	progress_begin("df");
	int r = shmstore_partition_usage(p, 0, &usage);
	if (r == 0)
		r = shmstore_partition_info(p, &info);
	int has_tier = r < 0 ? 0 : tierstate_read(p, &tier);
	progress_end();
	if (r < 0)
		return message_detail(shmstore_partition_path(p), r);
	struct json_object *o = jsonmake_new();
	fields_of(o, &info, FIELD_AS(FIELD_PROSE, path, "partition"), PROSE(mount),
		  FIELD_AS(FIELD_PROSE_ARRAY, uuid, "uuid"), SAME(tmpfs),
		  FIELD_AS(FIELD_PROSE_ARRAY, huge, "huge"), FIELD(bytes_size, "size"),
		  FIELD(bytes_used, "used"), FIELD(bytes_available, "available"));
	fields_of(o, &usage, SAME(linked), SAME(pool), SAME(stranded), SAME(foreign),
		  NUMBER(stores), NUMBER(objects), NUMBER(leases));
	fields_of(o, &info, SAME(inodes_size), SAME(inodes_used), SAME(inodes_free));
	jsonmake_u64(o, "demoted", usage.n_demoted);
	jsonmake_child(o, "tier", tierstate_json(has_tier > 0 ? &tier : NULL));
	json_show(a, o, print_df);
	if (usage.n_unreadable && !a->json)
		message_say("%" PRIu64 " directories could not be looked into: what is in them is "
			    "not counted",
			    usage.n_unreadable);
	return has_tier < 0 ? tierstate_explain(p, has_tier) : ADMIN_OK;
}
