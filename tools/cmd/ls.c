/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_ls.c: "shmstore-admin ls [STORE]": the objects of one store or of all. Printed while they are found: a million objects
 * need no memory. A store that goes meanwhile is no error; one that may not be read is.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jsonout.h"
#include "message.h"
#include "opening.h"
#include "options.h"
#include "progress.h"
#include "shellword.h"
#include "storelist.h"
#include "table.h"

#define COLUMNS(X)                             \
	X(STORE, "STORE", 0)                   \
	X(KEY, "KEY", 0)                       \
	X(HEADER, "HEADER", TABLE_RIGHT)       \
	X(BUFFERS_SIZE, "BUFFER", TABLE_RIGHT) \
	X(BUFFERS, "N", TABLE_RIGHT)           \
	X(WHERE, "WHERE", 0)                   \
	X(LINKS, "LINKS", TABLE_RIGHT)         \
	X(AGE, "AGE", TABLE_RIGHT)             \
	X(INODE, "INODE", TABLE_RIGHT)
TABLE_COLUMNS(columns, COLUMNS, N_COLUMNS);

struct ls {
	const struct admin *admin;
	const char *store; /* whose objects are being listed */
	struct table table;
	int sort; /* column; -1 = as they are found */
	uint64_t n_objects, n_damaged, n_unreadable, bytes, header_bytes, buffer_bytes;
};

static void add_json(struct ls *ls, const struct shmstore_object_info *info)
{
	struct json_object *o = jsonmake_new();

	jsonmake_prose(o, "store", ls->store);
	jsonmake_key(o, "key", info->key ? info->key : "", info->key_size);
	jsonmake_u64(o, "header_size", info->header_size);
	jsonmake_u64(o, "buffer_size", info->buffer_size);
	jsonmake_u64(o, "n_buffers", info->n_buffers);
	jsonmake_u64(o, "blocks", info->blocks);
	jsonmake_u64(o, "links", info->links);
	jsonmake_u64(o, "inode", info->inode);
	jsonmake_flag(o, "demoted", info->demoted);
	jsonmake_flag(o, "pinned", info->pinned);
	jsonmake_flag(o, "packed", info->packed);
	if (info->packed)
		jsonmake_null(o, "mtime");
	else
		jsonmake_real(o, "mtime", (double)info->mtime_ns / 1e9);
	jsonmake_prose(o, "name", info->name);
	jsonmake_prose(o, "error", info->error ? shmstore_strerror(info->error) : NULL);
	json_stream_item(o, ls->n_objects == 0);
}

static void add_row(struct ls *ls, const struct shmstore_object_info *info)
{
	struct table *t = &ls->table;

	table_row(t);
	table_text(t, STORE, ls->store);
	if (info->error) {
		table_text(t, KEY, info->name);
		table_color(t, KEY, "red");
		table_text(t, HEADER, info->error == -EPERM ? "unreadable" : "damaged");
	} else {
		if (info->key_size)
			table_key(t, KEY, info->key, info->key_size);
		else
			table_text(t, KEY, "(empty key)");
		table_size(t, HEADER, info->header_size);
		table_size(t, BUFFERS_SIZE, info->buffer_size);
		if (info->demoted) /* known when it is back */
			table_text(t, BUFFERS, "-");
		else
			table_count(t, BUFFERS, info->n_buffers);
	}
	table_text(t, WHERE, info->demoted ? "tier" : info->pinned ? "pinned" : info->packed ? "packed" : "memory");
	if (info->demoted)
		table_color(t, WHERE, "cyan");
	table_count(t, LINKS, info->links);
	if (info->packed)
		table_text(t, AGE, "-");
	else
		table_age(t, AGE, info->mtime_ns);
	table_count(t, INODE, info->inode);
}

static int add(const struct shmstore_object_info *info, void *arg)
{
	struct ls *ls = arg;

	if (ls->admin->json)
		add_json(ls, info);
	else
		add_row(ls, info);
	ls->n_objects++;
	ls->n_unreadable += info->error == -EPERM;
	ls->n_damaged += info->error && info->error != -EPERM;
	ls->bytes += info->blocks;
	ls->header_bytes += info->header_size;
	ls->buffer_bytes += info->buffer_size;
	progress_set(ls->n_objects, ls->bytes);
	return ferror(stdout) ? -EIO : 0; /* nobody reads any more */
}

/* Lists one store. A store that is gone by now is passed over, unless it was asked for. */
static int list(struct ls *ls, struct shmstore_partition *p, const struct storelist_entry *entry, bool asked)
{
	struct shmstore *s;
	int r = entry->readable ? storelist_open(p, entry, &s) : -EPERM;

	if (r == -ENOENT && !asked)
		return ADMIN_OK;
	if (r < 0)
		return opening_explain_store(p, entry->name[0] ? entry->name : entry->path, r);
	ls->store = entry->name;
	r = shmstore_foreach(s, add, ls);
	r = r < 0 && !ferror(stdout) ? message_detail(entry->name, r) : ADMIN_OK;
	shmstore_close(s);
	return r;
}

static int list_all(struct ls *ls, struct shmstore_partition *p, const char *name)
{
	struct storelist stores;
	int status = ADMIN_OK;
	int r = storelist_read(p, &stores);

	if (r < 0) {
		status = message_detail(shmstore_partition_path(p), r);
	} else if (name) {
		const struct storelist_entry *found = storelist_find(&stores, name);
		status = found ? list(ls, p, found, true) : opening_explain_store(p, name, -ENOENT);
	} else {
		for (size_t i = 0; i < stores.n_stores && !ferror(stdout); i++) {
			if (list(ls, p, &stores.stores[i], false) != ADMIN_OK)
				status = ADMIN_FAILED;
		}
	}
	storelist_deinit(&stores);
	return status;
}

static const char *const sorts[N_COLUMNS] = {[STORE] = "store",   [KEY] = "key",     [BUFFERS_SIZE] = "size",
					     [HEADER] = "header", [LINKS] = "links", [AGE] = "age"};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct command_line *line = state->input;
	struct ls *ls = line->own;

	if (key != 's')
		return options_common(key, arg, state);
	ls->sort = (int)options_one_of(state, "--sort", arg, sorts, N_COLUMNS);
	return 0;
}

/* The sums as the last line. An object of several stores counts in each. */
static void finish(struct ls *ls)
{
	struct table *t = &ls->table;

	if (ls->sort == STORE || ls->sort == KEY)
		table_sort(t, (size_t)ls->sort);
	else if (ls->sort >= 0)
		table_sort_down(t, (size_t)ls->sort);
	if (ls->n_objects) {
		table_row(t);
		table_text(t, STORE, "total");
		table_printf(t, KEY, "%" PRIu64 " names", ls->n_objects);
		table_size(t, HEADER, ls->header_bytes);
		table_size(t, BUFFERS_SIZE, ls->buffer_bytes);
		for (size_t i = 0; i < N_COLUMNS; i++)
			table_color(t, i, "bold");
	}
	table_finish(t);
}

int cmd_ls(struct admin *a, int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"sort", 's', "COLUMN", 0, "store, key, size, header, links or age; takes memory for all objects", 0},
		{NULL, 0, NULL, 0, NULL, 0},
	};
	static const struct argp argp = OPTIONS_ARGP(
		options, parse, "ls [STORE]",
		"Lists the objects of STORE (a name, or the store's path), or of all stores.\v"
		"HEADER and BUFFER are the sizes of the ticket: all that is copied and all that is shared. N is the "
		"number of buffers. WHERE is memory, tier (moved to the disk until somebody gets it), pinned (in "
		"memory, and stays there), or packed (in memory, one of many in a segment). LINKS counts the object's "
		"names in all stores and its leases. AGE is the "
		"time since it was written, of which packed objects tell nothing; the total counts an object in each "
		"of its stores.");
	static const char *const names[] = {"STORE", NULL};
	struct ls ls = {.admin = a, .sort = -1};
	struct command_line line = {.admin = a, .names = names, .own = &ls};
	struct shmstore_partition *p;

	options_parse(&argp, &line, argc, argv);
	int status = opening_partition(a, &p);
	if (status)
		return status;
	if (a->json)
		json_stream_begin("objects");
	else
		table_init(&ls.table, a, columns, N_COLUMNS);
	ls.table.hold = ls.sort >= 0;
	if (!isatty(STDOUT_FILENO)) /* else the list itself is seen to grow */
		progress_begin("ls");
	status = list_all(&ls, p, line.args[0]);
	progress_end();
	if (a->json)
		json_stream_end(NULL);
	else
		finish(&ls);
	if (ls.n_unreadable) {
		status = message_fail(shmstore_partition_path(p), "%" PRIu64 " files cannot be read by user %u",
				      ls.n_unreadable, (unsigned)geteuid());
		message_hint("as their user, this shows what is in them");
	}
	if (ls.n_damaged) {
		status = message_fail(shmstore_partition_path(p), "%" PRIu64 " damaged objects", ls.n_damaged);
		message_hint("to see what is wrong with them: " ADMIN_NAME " -p %s verify",
			     shellword(shmstore_partition_path(p)));
	}
	shmstore_partition_unref(p);
	return status;
}
