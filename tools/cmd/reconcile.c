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

#include "human.h"
#include "jsonout.h"
#include "keytext.h"
#include "message.h"
#include "opening.h"
#include "options.h"
#include "progress.h"
#include "shellword.h"
#include "table.h"
#include "usagejson.h"

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

static const char *kind_name(enum shmstore_hold kind)
{
	return kind == SHMSTORE_HOLD_INFLIGHT ? "inflight" : "ghost";
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

static void print_json(struct holders *l, const struct shmstore_usage *u, const char *path)
{
	struct json_object *o = jsonmake_new();
	struct process process;

	jsonmake_prose(o, "partition", path);
	usagejson_add(o, u);
	struct json_object *list = jsonmake_child(o, "holders", jsonmake_new_list());
	for (size_t i = 0; i < l->n_holders;) {
		i = next_process(l, i, &process);
		struct json_object *h = jsonmake_new();
		jsonmake_i64(h, "pid", process.first->pid);
		jsonmake_u64(h, "uid", process.first->uid);
		jsonmake_prose(h, "command", process.first->command);
		jsonmake_u64(h, "bytes", process.bytes);
		jsonmake_u64(h, "objects", process.n_objects);
		jsonmake_u64(h, "mapped", process.mapped);
		jsonmake_append(list, h);
	}
	if (l->n_holders)
		qsort(l->holders, l->n_holders, sizeof(*l->holders), by_inode);
	list = jsonmake_child(o, "ghost_list", jsonmake_new_list());
	for (size_t i = 0; i < l->n_holders;) {
		const struct holder *h = &l->holders[i];
		struct json_object *g = jsonmake_new();
		jsonmake_prose(g, "kind", kind_name(h->kind));
		jsonmake_u64(g, "inode", h->inode);
		jsonmake_u64(g, "bytes", h->bytes);
		jsonmake_prose(g, "key", h->key);
		jsonmake_prose(g, "path", h->path);
		struct json_object *who = jsonmake_child(g, "holders", jsonmake_new_list());
		for (; i < l->n_holders && same_object(&l->holders[i], h); i++) {
			struct json_object *w = jsonmake_new();
			jsonmake_i64(w, "pid", l->holders[i].pid);
			jsonmake_prose(w, "command", l->holders[i].command);
			jsonmake_u64(w, "mapped", l->holders[i].mapped);
			jsonmake_u64(w, "fds", l->holders[i].n_fds);
			jsonmake_append(who, w);
		}
		jsonmake_append(list, g);
	}
	json_print(o);
}

static void begin_terms(struct table *t, const struct admin *a)
{
	static const struct table_column columns[] = {
		{"", 0}, {"TERM", 0}, {"BYTES", TABLE_RIGHT}, {"WHAT IT IS", TABLE_TRUNC}};

	table_init(t, a, columns, 4);
	table_no_headings(t);
}

static void print_term(struct table *t, const char *sign, const char *name, uint64_t bytes, const char *meaning)
{
	table_row(t);
	table_text(t, 0, sign);
	table_text(t, 1, name);
	table_size(t, 2, bytes);
	table_text(t, 3, meaning);
}

static void print_equation(const struct admin *a, const struct shmstore_usage *u)
{
	char size[HUMAN_SIZE];
	struct table t;

	begin_terms(&t, a);
	print_term(&t, "", "used", u->used, "what the file system says");
	print_term(&t, "=", "linked", u->linked, "named objects, each inode once, and the stores' own pages");
	print_term(&t, "+", "ghosts", u->ghosts, "deleted, but a process still maps or opens them");
	print_term(&t, "+", "pool", u->pool, "recycled files, kept for the next put");
	if (u->stranded)
		print_term(&t, "", "", u->stranded, "of it in pages that packed objects have the rest of");
	print_term(&t, "+", "inflight", u->inflight, "being written, not yet published");
	print_term(&t, "+", "foreign", u->foreign, "files on this file system that are not shmstore's");
	table_row(&t);
	table_text(&t, 0, "+");
	table_text(&t, 1, "residual");
	table_printf(&t, 2, "%s%s", u->residual < 0 ? "-" : "",
		     human_bytes(u->residual < 0 ? (uint64_t)-u->residual : (uint64_t)u->residual, a->bytes, size));
	table_text(&t, 3, u->residual ? "not accounted for" : "every byte is accounted for");
	table_color(&t, 2, u->residual ? "red" : "green");
	table_finish(&t);
}

/* The disk's own equation. */
static void print_tier(const struct admin *a, const struct shmstore_usage *u)
{
	struct table t;

	putchar('\n');
	begin_terms(&t, a);
	print_term(&t, "", "tier", u->tier, "tier files, on disk");
	print_term(&t, "=", "demoted", u->tier_demoted, "of objects that are there only");
	print_term(&t, "+", "clean", u->tier_clean, "of objects that are in memory as well");
	print_term(&t, "+", "orphans", u->tier_orphans,
		   u->tier_orphans ? "left by killed processes: gc removes them" : "of nobody");
	if (u->tier_orphans)
		table_color(&t, 2, "yellow");
	table_finish(&t);
}

static void print_processes(const struct admin *a, const struct holders *l)
{
	static const struct table_column columns[] = {
		{"PID", TABLE_RIGHT},     {"USER", TABLE_RIGHT},   {"COMMAND", 0},           {"HOLDS", TABLE_RIGHT},
		{"OBJECTS", TABLE_RIGHT}, {"GHOSTS", TABLE_RIGHT}, {"INFLIGHT", TABLE_RIGHT}};
	struct process process;
	struct table t;

	table_init(&t, a, columns, 7);
	for (size_t i = 0; i < l->n_holders;) {
		i = next_process(l, i, &process);
		table_row(&t);
		table_printf(&t, 0, "%d", process.first->pid);
		table_printf(&t, 1, "%u", process.first->uid);
		table_text(&t, 2, process.first->command);
		table_size(&t, 3, process.bytes);
		table_count(&t, 4, process.n_objects);
		table_size(&t, 5, process.ghosts);
		table_size(&t, 6, process.inflight);
	}
	table_finish(&t);
}

static void print_inodes(const struct admin *a, const struct holders *l)
{
	static const struct table_column columns[] = {
		{"WHAT", 0},    {"BYTES", TABLE_RIGHT},  {"INODE", TABLE_RIGHT}, {"PID", TABLE_RIGHT},
		{"COMMAND", 0}, {"MAPPED", TABLE_RIGHT}, {"FDS", TABLE_RIGHT},   {"KEY", 0},
	};
	struct table t;

	table_init(&t, a, columns, 8);
	for (size_t i = 0; i < l->n_holders; i++) {
		const struct holder *h = &l->holders[i];
		table_row(&t);
		if (!i || !same_object(&h[-1], h)) { /* the others only add their process */
			table_text(&t, 0, kind_name(h->kind));
			table_size(&t, 1, h->bytes);
			table_count(&t, 2, h->inode);
		}
		table_printf(&t, 3, "%d", h->pid);
		table_text(&t, 4, h->command);
		table_size(&t, 5, h->mapped);
		table_count(&t, 6, h->n_fds);
		if (h->key)
			table_printf(&t, 7, "%s", h->key); /* escaped already */
		else
			table_text(&t, 7, h->path);
	}
	table_finish(&t);
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
	if (holders.n_holders)
		qsort(holders.holders, holders.n_holders, sizeof(*holders.holders), by_pid);
	if (r < 0) {
		status = message_detail(shmstore_partition_path(p), r);
	} else {
		if (a->json) {
			print_json(&holders, &usage, shmstore_partition_path(p));
		} else {
			print_equation(a, &usage);
			if (usage.tier || usage.n_demoted)
				print_tier(a, &usage);
			if (holders.n_holders) {
				putchar('\n');
				print_processes(a, &holders);
				qsort(holders.holders, holders.n_holders, sizeof(*holders.holders), by_inode);
				putchar('\n');
				print_inodes(a, &holders);
			}
			fflush(stdout);
		}
		status = conclude(&usage, shmstore_partition_path(p));
	}
	holders_deinit(&holders);
	shmstore_partition_unref(p);
	return status;
}
