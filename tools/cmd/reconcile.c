/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_reconcile.c: "shmstore-admin reconcile": the df equation with its witnesses. The library reports one holder (a process
 * and an inode without a name) at a time; they are gathered here twice: by process, for "who holds how much", and by inode,
 * for "who holds this ghost". Not clean is a residual other than 0.
 */
#include <inttypes.h>
#include <shmstore/inspect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fields.h"
#include "human.h"
#include "jsonin.h"
#include "jsonout.h"
#include "keytext.h"
#include "message.h"
#include "opening.h"
#include "options.h"
#include "progress.h"
#include "shellword.h"
#include "table.h"

struct holder {
	enum shmstore_hold kind;
	pid_t pid;
	uid_t uid;
	uint64_t inode, generation, bytes, mapped, n_fds;
	char *command, *path;
	char *key; /* as text; NULL = not known */
};

struct holders {
	size_t n_holders;
	struct holder *holders;
};

static char *copy(const char *text)
{
	char *copied = strdup(text ? text : "");

	if (!copied)
		message_no_memory();
	return copied;
}

static int add(const struct shmstore_holder *h, void *arg)
{
	struct holders *l = arg;

	if ((l->n_holders & (l->n_holders - 1)) == 0) { /* a power of two: full */
		struct holder *grown = realloc(l->holders, (l->n_holders ? 2 * l->n_holders : 1) * sizeof(*grown));
		if (!grown)
			message_no_memory();
		l->holders = grown;
	}
	l->holders[l->n_holders++] = (struct holder){
		.kind = h->kind,
		.pid = h->pid,
		.uid = h->uid,
		.inode = h->inode,
		.generation = h->generation,
		.bytes = h->bytes,
		.mapped = h->mapped,
		.n_fds = h->n_fds,
		.command = copy(h->command),
		.path = copy(h->path),
		.key = h->key ? keytext_new(h->key, h->key_size) : NULL,
	};
	return 0;
}

static void holders_deinit(struct holders *l)
{
	for (size_t i = 0; i < l->n_holders; i++) {
		free(l->holders[i].command);
		free(l->holders[i].path);
		free(l->holders[i].key);
	}
	free(l->holders);
}

static int by_pid(const void *a, const void *b)
{
	const struct holder *x = a, *y = b;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	return (x->inode > y->inode) - (x->inode < y->inode);
}

static int by_inode(const void *a, const void *b)
{
	const struct holder *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1; /* the largest first */
	if (x->inode != y->inode)
		return x->inode < y->inode ? -1 : 1;
	if (x->generation != y->generation)
		return x->generation < y->generation ? -1 : 1;
	return (x->pid > y->pid) - (x->pid < y->pid);
}

static bool same_object(const struct holder *a, const struct holder *b)
{
	return a->inode == b->inode && a->generation == b->generation;
}

/* One process's holdings: holders[i..ret) of a list sorted by pid. */
struct process {
	const struct holder *first;
	uint64_t bytes, mapped, n_objects, ghosts, inflight;
};

static size_t next_process(const struct holders *l, size_t i, struct process *ret)
{
	*ret = (struct process){.first = &l->holders[i]};
	for (; i < l->n_holders && l->holders[i].pid == ret->first->pid; i++) {
		const struct holder *h = &l->holders[i];
		ret->bytes += h->bytes;
		ret->mapped += h->mapped;
		ret->n_objects++;
		*(h->kind == SHMSTORE_HOLD_INFLIGHT ? &ret->inflight : &ret->ghosts) += h->bytes;
	}
	return i;
}

#include "usage.def"

/* The document; as text it has the terms of processes too. */
static struct json_object *make_document(const struct admin *a, struct holders *l, const struct shmstore_usage *u,
					 const char *path)
{
	struct json_object *o = jsonmake_new(), *list;
	struct process process;

	jsonmake_prose(o, "partition", path);
	fields_add(o, of_usage, u);
	list = jsonmake_child(o, "holders", jsonmake_new_list());
	if (l->n_holders)
		qsort(l->holders, l->n_holders, sizeof(*l->holders), by_pid);
	for (size_t i = 0; i < l->n_holders;) {
		struct json_object *h = jsonmake_append(list, jsonmake_new());

		i = next_process(l, i, &process);
		fields_of(h, &process, PLACE("pid"), PLACE("uid"), PLACE("command"), SAME(bytes), NUMBER(objects),
			  SAME(mapped));
		jsonmake_i64(h, "pid", process.first->pid);
		jsonmake_u64(h, "uid", process.first->uid);
		jsonmake_prose(h, "command", process.first->command);
		if (a->json)
			continue;
		jsonmake_u64(h, "ghosts", process.ghosts);
		jsonmake_u64(h, "inflight", process.inflight);
	}
	if (l->n_holders)
		qsort(l->holders, l->n_holders, sizeof(*l->holders), by_inode);
	list = jsonmake_child(o, "ghost_list", jsonmake_new_list());
	for (size_t i = 0; i < l->n_holders;) {
		const struct holder *h = &l->holders[i];
		struct json_object *g = jsonmake_append(list, jsonmake_new()), *who;

		fields_of(g, h, PLACE("kind"), SAME(inode), SAME(bytes), FIELD_AS(FIELD_PROSE, key, "key"),
			  FIELD_AS(FIELD_PROSE, path, "path"));
		jsonmake_prose(g, "kind", h->kind == SHMSTORE_HOLD_INFLIGHT ? "inflight" : "ghost");
		who = jsonmake_child(g, "holders", jsonmake_new_list());
		for (; i < l->n_holders && same_object(&l->holders[i], h); i++)
			fields_of(jsonmake_append(who, jsonmake_new()), &l->holders[i], SAME(pid),
				  FIELD_AS(FIELD_PROSE, command, "command"), SAME(mapped), FIELD(n_fds, "fds"));
	}
	return o;
}

static void begin_terms(struct table *t, const struct admin *a)
{
	static const struct table_column columns[] = {
		{""}, {"TERM"}, {"BYTES", TABLE_RIGHT}, {"WHAT IT IS", TABLE_TRUNC}};

	table_init(t, a, columns, 4);
	table_no_headings(t);
}

static void print_term(struct table *t, const char *sign, const struct json_object *o, const char *member,
		       const char *name, const char *meaning)
{
	table_row(t);
	table_text(t, 0, sign);
	table_text(t, 1, name);
	table_figure(t, 2, jsonin_at_path(o, member), FIGURE_SIZE);
	table_text(t, 3, meaning);
}

static void print_equation(const struct admin *a, const struct json_object *o)
{
	int64_t residual = jsonin_i64(o, "residual");
	char size[HUMAN_SIZE];
	struct table t;

	begin_terms(&t, a);
	print_term(&t, "", o, "used", "used", "what the file system says");
	print_term(&t, "=", o, "linked", "linked", "named objects, each inode once, and the stores' own pages");
	print_term(&t, "+", o, "ghosts", "ghosts", "deleted, but a process still maps or opens them");
	print_term(&t, "+", o, "pool", "pool", "recycled files, kept for the next put");
	if (jsonin_u64(o, "stranded"))
		print_term(&t, "", o, "stranded", "", "of it in pages that packed objects have the rest of");
	print_term(&t, "+", o, "inflight", "inflight", "being written, not yet published");
	print_term(&t, "+", o, "foreign", "foreign", "files on this file system that are not shmstore's");
	print_term(&t, "+", o, "residual", "residual", residual ? "not accounted for" : "every byte is accounted for");
	table_printf(&t, 2, "%s%s", residual < 0 ? "-" : "",
		     human_bytes(residual < 0 ? (uint64_t)-residual : (uint64_t)residual, a->bytes, size));
	table_color(&t, 2, residual ? "red" : "green");
	table_finish(&t);
}

/* The disk's own equation. */
static void print_tier(const struct admin *a, const struct json_object *o)
{
	const bool orphans = jsonin_u64(o, "tier_orphans") != 0;
	struct table t;

	putchar('\n');
	begin_terms(&t, a);
	print_term(&t, "", o, "tier", "tier", "tier files, on disk");
	print_term(&t, "=", o, "tier_demoted", "demoted", "of objects that are there only");
	print_term(&t, "+", o, "tier_clean", "clean", "of objects that are in memory as well");
	print_term(&t, "+", o, "tier_orphans", "orphans",
		   orphans ? "left by killed processes: gc removes them" : "of nobody");
	if (orphans)
		table_color(&t, 2, "yellow");
	table_finish(&t);
}

static const struct table_column processes[] = {{"PID", FIGURE_COUNT, "pid"},         {"USER", FIGURE_COUNT, "uid"},
						{"COMMAND", FIGURE_TEXT, "command"},  {"HOLDS", FIGURE_SIZE, "bytes"},
						{"OBJECTS", FIGURE_COUNT, "objects"}, {"GHOSTS", FIGURE_SIZE, "ghosts"},
						{"INFLIGHT", FIGURE_SIZE, "inflight"}};

/* A row for each holder; what it holds stands in the first of several. */
static void print_inodes(const struct admin *a, const struct json_object *o)
{
	static const struct table_column columns[] = {
		{"WHAT"},
		{"BYTES", TABLE_RIGHT},
		{"INODE", TABLE_RIGHT},
		{"PID", FIGURE_COUNT, "pid"},
		{"COMMAND", FIGURE_TEXT, "command"},
		{"MAPPED", FIGURE_SIZE, "mapped"},
		{"FDS", FIGURE_COUNT, "fds"},
		{"KEY"},
	};
	struct table t;

	table_init(&t, a, columns, 8);
	for (size_t i = 0; i < jsonin_count(o, "ghost_list"); i++) {
		const struct json_object *g = jsonin_at(o, "ghost_list", i);

		for (size_t k = 0; k < jsonin_count(g, "holders"); k++) {
			table_object(&t, jsonin_at(g, "holders", k));
			if (jsonin_has(g, "key"))
				table_printf(&t, 7, "%s", jsonin_text(g, "key")); /* escaped already */
			else
				table_text(&t, 7, jsonin_text(g, "path"));
			if (k)
				continue;
			table_text(&t, 0, jsonin_text(g, "kind"));
			table_size(&t, 1, jsonin_u64(g, "bytes"));
			table_count(&t, 2, jsonin_u64(g, "inode"));
		}
	}
	table_finish(&t);
}

static void print_text(const struct admin *a, const struct json_object *o)
{
	print_equation(a, o);
	if (jsonin_u64(o, "tier") || jsonin_u64(o, "demoted"))
		print_tier(a, o);
	if (jsonin_count(o, "holders")) {
		putchar('\n');
		TABLE_LIST(a, processes, o, "holders");
		putchar('\n');
		print_inodes(a, o);
	}
	fflush(stdout);
}

static int conclude(const struct shmstore_usage *u, const char *path)
{
	if (u->residual == 0)
		return ADMIN_OK;
	message_fail(path, "%" PRId64 " bytes are not accounted for", u->residual);
	if (u->n_unreadable)
		message_hint("%" PRIu64 " processes or directories could not be looked into; as root: sudo " ADMIN_NAME
			     " -p %s reconcile",
			     u->n_unreadable, shellword(path));
	else
		message_hint("if processes are writing now, try again when they are quiet");
	return ADMIN_FAILED;
}

int cmd_reconcile(struct admin *a, int argc, char **argv)
{
	static const struct argp argp = OPTIONS_ARGP(
		NULL, options_common, "reconcile",
		"Accounts for every byte of the file system and names the processes that hold memory of deleted "
		"objects.\v"
		"Exit status 1 if the residual is not 0.");
	struct command_line line = {.admin = a};
	struct holders holders = {0, NULL};
	struct shmstore_partition *p;
	struct shmstore_usage usage;

	options_parse(&argp, &line, argc, argv);
	int status = opening_partition(a, &p);
	if (status)
		return status;
	progress_begin("reconcile");
	int r = shmstore_partition_reconcile(p, add, &holders, &usage);
	progress_end();
	if (r < 0) {
		status = message_detail(shmstore_partition_path(p), r);
	} else {
		json_show(a, make_document(a, &holders, &usage, shmstore_partition_path(p)), print_text);
		status = conclude(&usage, shmstore_partition_path(p));
	}
	holders_deinit(&holders);
	shmstore_partition_unref(p);
	return status;
}
