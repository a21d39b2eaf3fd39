/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_du.c: "shmstore-admin du": what each store holds, from the file system. linked counts an object that several stores
 * hold in each of them, pss divides it by its links, uss counts only what nobody else links: what would be freed.
 */
#include <errno.h>
#include <shmstore/inspect.h>
#include <stdio.h>
#include <string.h>

#include "admin.h"
#include "jsonout.h"
#include "message.h"
#include "opening.h"
#include "options.h"
#include "progress.h"
#include "table.h"
#include "tierstate.h"

#define COLUMNS(X)                           \
	X(NAME, "STORE", 0)                  \
	X(PID, "PID", TABLE_RIGHT)           \
	X(STATE, "STATE", 0)                 \
	X(OBJECTS, "OBJECTS", TABLE_RIGHT)   \
	X(LINKED, "LINKED", TABLE_RIGHT)     \
	X(PSS, "PSS", TABLE_RIGHT)           \
	X(USS, "USS", TABLE_RIGHT)           \
	X(LEASED, "LEASED", TABLE_RIGHT)     \
	X(POOL, "POOL", TABLE_RIGHT)         \
	X(STRANDED, "STRANDED", TABLE_RIGHT) \
	X(DEMOTED, "DEMOTED", TABLE_RIGHT)   \
	X(MAPPED, "MAPPED", TABLE_RIGHT)     \
	X(AGE, "AGE", TABLE_RIGHT)           \
	X(LABEL, "LABEL", TABLE_TRUNC)
TABLE_COLUMNS(columns, COLUMNS, N_COLUMNS);

struct du {
	const struct admin *admin;
	struct json_object *stores; /* with --json */
	struct table table;         /* without */
	int sort;                   /* column */
	uint64_t pss, uss, leased, pool, stranded, demoted, n_demoted, n_clean, n_seen, n_unreadable, n_unknown;
};

static void add_json(struct du *du, const struct shmstore_store_books *b)
{
	const struct shmstore_store_info *s = b->store;
	struct json_object *o = jsonmake_new();

	jsonmake_prose(o, "name", s->name);
	jsonmake_prose(o, "path", s->path);
	jsonmake_flag(o, "readable", s->readable);
	if (s->readable)
		jsonmake_i64(o, "pid", s->pid);
	else
		jsonmake_null(o, "pid");
	if (s->alive == SHMSTORE_ALIVE_UNKNOWN)
		jsonmake_null(o, "alive");
	else
		jsonmake_flag(o, "alive", s->alive == SHMSTORE_ALIVE);
	jsonmake_flag(o, "keep", s->keep);
	jsonmake_u64(o, "uid", s->uid);
	jsonmake_prose(o, "label", s->label);
	jsonmake_prose(o, "address", s->address);
	jsonmake_u64(o, "objects", b->n_objects);
	jsonmake_u64(o, "leases", b->n_leases);
	jsonmake_u64(o, "linked", b->linked);
	jsonmake_u64(o, "pss", b->pss);
	jsonmake_u64(o, "uss", b->uss);
	jsonmake_u64(o, "leased", b->leased);
	jsonmake_u64(o, "pool", b->pool);
	jsonmake_u64(o, "stranded", b->stranded);
	jsonmake_u64(o, "metadata", b->metadata);
	jsonmake_u64(o, "demoted", b->demoted);
	jsonmake_u64(o, "n_demoted", b->n_demoted);
	jsonmake_u64(o, "n_clean", b->n_clean);
	jsonmake_u64(o, "mapped", s->counters.mapped_bytes);
	jsonmake_real(o, "created", (double)s->created_ns / 1e9);
	jsonmake_append(du->stores, o);
}

static void add_row(struct du *du, const struct shmstore_store_books *b)
{
	const struct shmstore_store_info *s = b->store;
	struct table *t = &du->table;

	table_row(t);
	table_text(t, NAME, s->name[0] ? s->name : s->path);
	if (!s->readable) {
		table_printf(t, STATE, "of user %u", s->uid);
		return;
	}
	if (s->pid) /* a kept store that was closed is nobody's */
		table_count(t, PID, (uint64_t)s->pid);
	if (s->alive == SHMSTORE_ALIVE) {
		table_text(t, STATE, "alive");
		table_color(t, STATE, "green");
	} else if (s->alive == SHMSTORE_ALIVE_UNKNOWN) {
		table_text(t, STATE, "unknown");
	} else {
		table_text(t, STATE, s->keep ? "kept" : "dead");
		table_color(t, STATE, s->keep ? "cyan" : "red");
	}
	table_count(t, OBJECTS, b->n_objects);
	table_size(t, LINKED, b->linked);
	table_size(t, PSS, b->pss);
	table_size(t, USS, b->uss);
	table_size(t, LEASED, b->leased);
	table_size(t, POOL, b->pool);
	table_size(t, STRANDED, b->stranded);
	table_size(t, DEMOTED, b->demoted);
	table_size(t, MAPPED, s->alive == SHMSTORE_ALIVE ? s->counters.mapped_bytes : 0);
	table_age(t, AGE, s->created_ns);
	table_text(t, LABEL, s->label);
}

static int add(const struct shmstore_store_books *b, void *arg)
{
	struct du *du = arg;

	if (du->admin->json)
		add_json(du, b);
	else
		add_row(du, b);
	du->n_unreadable += !b->store->readable;
	du->n_unknown += b->store->readable && b->store->alive == SHMSTORE_ALIVE_UNKNOWN;
	du->pss += b->pss;
	du->uss += b->uss;
	du->leased += b->leased;
	du->pool += b->pool;
	du->stranded += b->stranded;
	du->demoted += b->demoted;
	du->n_demoted += b->n_demoted;
	du->n_clean += b->n_clean;
	du->n_seen += b->n_objects;
	progress_set(du->n_seen, 0);
	return 0;
}

static void finish(struct du *du, const struct shmstore_books_total *total)
{
	if (du->admin->json) {
		struct json_object *o = jsonmake_new();
		jsonmake_child(o, "stores", du->stores);
		jsonmake_u64(o, "total_linked", total->linked);
		jsonmake_u64(o, "total_stores", total->n_stores);
		jsonmake_u64(o, "total_objects", total->n_objects);
		jsonmake_u64(o, "total_pss", du->pss);
		jsonmake_u64(o, "total_uss", du->uss);
		jsonmake_u64(o, "total_leased", du->leased);
		jsonmake_u64(o, "total_pool", du->pool);
		jsonmake_u64(o, "total_stranded", du->stranded);
		jsonmake_u64(o, "total_demoted", du->demoted);
		jsonmake_u64(o, "total_n_demoted", du->n_demoted);
		jsonmake_u64(o, "total_n_clean", du->n_clean);
		json_print(o);
		return;
	}
	if (!total->n_stores && !du->table.n_lines) {
		table_finish(&du->table);
		puts("no stores");
		return;
	}
	if (du->sort == NAME)
		table_sort(&du->table, NAME);
	else
		table_sort_down(&du->table, (size_t)du->sort);
	table_row(&du->table);
	table_text(&du->table, NAME, "total");
	table_text(&du->table, STATE, "each once");
	table_count(&du->table, OBJECTS, total->n_objects);
	table_size(&du->table, LINKED, total->linked);
	table_size(&du->table, PSS, du->pss);
	table_size(&du->table, USS, du->uss);
	table_size(&du->table, LEASED, du->leased);
	table_size(&du->table, POOL, du->pool);
	table_size(&du->table, STRANDED, du->stranded);
	table_size(&du->table, DEMOTED, du->demoted);
	for (size_t i = 0; i < N_COLUMNS; i++)
		table_color(&du->table, i, "bold");
	table_finish(&du->table);
}

static const char *const sorts[N_COLUMNS] = {
	[NAME] = "name",       [OBJECTS] = "objects", [LINKED] = "linked", [PSS] = "pss",
	[USS] = "uss",         [LEASED] = "leased",   [POOL] = "pool",     [STRANDED] = "stranded",
	[DEMOTED] = "demoted", [MAPPED] = "mapped",   [AGE] = "age",       [PID] = "pid"};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct command_line *line = state->input;
	struct du *du = line->own;

	if (key != 's')
		return options_common(key, arg, state);
	du->sort = (int)options_one_of(state, "--sort", arg, sorts, N_COLUMNS);
	return 0;
}

int cmd_du(struct admin *a, int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"sort", 's', "COLUMN", 0,
		 "name (default), objects, linked, pss, uss, leased, pool, stranded, demoted, mapped, age or pid", 0},
		{NULL, 0, NULL, 0, NULL, 0},
	};
	static const struct argp argp = OPTIONS_ARGP(
		options, parse, "du",
		"What each store holds.\v"
		"LINKED is all that a store links; an object of several stores counts in each of them, but once in "
		"the total. PSS shares it out by links and adds up. USS is what would be freed if the store went "
		"now. LEASED are leases whose object it links no longer. POOL is memory kept for the next puts, "
		"STRANDED "
		"the part of it in pages of which small objects have the rest. MAPPED are live views, AGE is that of "
		"the store. On a partition with a disk tier, DEMOTED is what a store's objects "
		"there take in memory when they come back; until then they count in OBJECTS only.");
	struct du du = {.admin = a};
	struct command_line line = {.admin = a, .own = &du};
	struct shmstore_books_total total = {.size = sizeof(total)};
	struct shmstore_partition *p;
	struct table_column shown[N_COLUMNS];
	char tier[PATH_MAX];

	options_parse(&argp, &line, argc, argv);
	int status = opening_partition(a, &p);
	if (status)
		return status;
	memcpy(shown, columns, sizeof(shown));
	if (!tierstate_directory(p, tier))
		shown[DEMOTED].flags |= TABLE_HIDDEN;
	du.stores = table_or_list(&du.table, a, shown, N_COLUMNS);
	table_hold(&du.table);
	progress_begin("du");
	int r = shmstore_partition_books(p, add, &du, &total);
	progress_end();
	if (r < 0) {
		status = message_detail(shmstore_partition_path(p), r);
	} else {
		finish(&du, &total);
		if (du.n_unreadable) {
			status = message_fail(shmstore_partition_path(p), "%llu stores could not be read",
					      (unsigned long long)du.n_unreadable);
			message_hint("run this as root to see them");
		}
		if (du.n_unknown)
			status = message_fail(shmstore_partition_path(p),
					      "of %llu stores it cannot be told whether their owners live: their locks "
					      "cannot be tried%s",
					      (unsigned long long)du.n_unknown, message_refused(-EPERM));
	}
	shmstore_partition_unref(p);
	return status;
}
