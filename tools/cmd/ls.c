/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_ls.c: "shmstore-admin ls [STORE]": the objects of one store or of all. Printed while they are
 * found: a million objects need no memory. A store that goes meanwhile is no error; one that may
 * not be read is.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "fields.h"
#include "jsonin.h"
#include "message.h"
#include "opening.h"
#include "options.h"
#include "progress.h"
#include "table.h"

static const struct table_column columns[] = {
	{"STORE", FIGURE_TEXT, "store"},
	{"KEY", 0, "[error?{name}|[key?{key:raw}|(empty key)]]"},
	{"HEADER", FIGURE_SIZE, "header_size"},
	{"BUFFER", FIGURE_SIZE, "buffer_size"},
	{"N", TABLE_RIGHT, "[demoted?-|[error?|{n_buffers}]]"}, /* known when it is back */
	{"WHERE", TABLE_STATE, "[demoted?tier|[pinned?pinned|[packed?packed|memory]]]"},
	{"LINKS", FIGURE_COUNT, "links"},
	{"AGE", FIGURE_AGO, "mtime", "-"},
	{"INODE", FIGURE_COUNT, "inode"},
};
enum {
	KEY = 1,
	HEADER
};
#define N_COLUMNS (sizeof(columns) / sizeof(columns[0]))
/* The words of --sort, column by column. */
static const char *const sorts[N_COLUMNS] = {"store", "key", "header", "size",
					     NULL,    NULL,  "links",  "age"};

struct ls {
	const struct admin *admin;
	const char *store; /* whose objects are being listed */
	struct table table;
	size_t sort; /* column; N_COLUMNS: as they are found */
	uint64_t n_objects, n_damaged, n_unreadable, bytes, header_bytes, buffer_bytes;
};

static struct json_object *describe(const struct ls *ls, const struct shmstore_object_info *info)
{
	struct json_object *o = jsonmake_new();

	jsonmake_prose(o, "store", ls->store);
	jsonmake_key(o, "key", info->key ? info->key : "", info->key_size);
	fields_of(o, info, SAME(header_size), SAME(buffer_size), SAME(n_buffers), SAME(blocks),
		  SAME(links), SAME(inode), SAME(demoted), SAME(pinned), SAME(packed),
		  FIELD_AS(FIELD_REAL_NS, mtime_ns, "mtime"), PROSE(name));
	if (info->packed)
		jsonmake_null(o, "mtime");
	jsonmake_prose(o, "error", info->error ? shmstore_strerror(info->error) : NULL);
	return o;
}

static int add(const struct shmstore_object_info *info, void *arg)
{
	struct ls *ls = arg;
	struct json_object *o = describe(ls, info);

	if (ls->admin->json) {
		json_stream_item(o, ls->n_objects == 0);
	} else {
		table_object(&ls->table, o);
		if (info->error) {
			table_color(&ls->table, KEY, "red");
			table_text(&ls->table, HEADER,
				   info->error == -EPERM ? "unreadable" : "damaged");
			table_text(&ls->table, HEADER + 1, "");
		}
		jsonin_free(o);
	}
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
static int list(struct ls *ls, struct shmstore_partition *p,
		const struct shmstore_store_info *entry, bool asked)
{
	_store_ struct shmstore *s = NULL;
	int r = entry->readable ? storelist_open(p, entry, &s) : -EPERM;

	if (r == -ENOENT && !asked)
		return ADMIN_OK;
	if (r < 0)
		return opening_explain_store(p, entry->name[0] ? entry->name : entry->path, r);
	ls->store = entry->name;
	r = shmstore_foreach(s, add, ls);
	return r < 0 && !ferror(stdout) ? message_detail(entry->name, r) : ADMIN_OK;
}

static int list_all(struct ls *ls, struct shmstore_partition *p, const char *name)
{
	_stores_ struct storelist stores = STORELIST_NULL;
	int status = ADMIN_OK;
	int r = storelist_read(p, &stores);

	if (r < 0)
		return message_detail(shmstore_partition_path(p), r);
	if (name) {
		const struct shmstore_store_info *found = storelist_find(&stores, name);
		return found ? list(ls, p, found, true) : opening_explain_store(p, name, -ENOENT);
	}
	for (size_t i = 0; i < stores.n_stores && !ferror(stdout); i++) {
		if (list(ls, p, &stores.stores[i], false) != ADMIN_OK)
			status = ADMIN_FAILED;
	}
	return status;
}

/* The sums as the last line. An object of several stores counts in each. */
static void finish(struct ls *ls)
{
	struct table *t = &ls->table;

	if (ls->sort < N_COLUMNS)
		table_sort(t, ls->sort);
	if (ls->n_objects) {
		table_row(t);
		table_text(t, 0, "total");
		table_printf(t, KEY, "%" PRIu64 " names", ls->n_objects);
		table_size(t, HEADER, ls->header_bytes);
		table_size(t, HEADER + 1, ls->buffer_bytes);
		table_row_color(t, "bold");
	}
	table_finish(t);
}

int cmd_ls(struct admin *a, int argc, char **argv)
{
	typedef struct ls OF;
	static const struct options_row options[] = {
		{"sort", 's', "COLUMN",
		 "store, key, size, header, links or age; takes memory for all objects",
		 OPTIONS_WORD, offsetof(OF, sort), .words = sorts, .n_words = N_COLUMNS},
		{NULL},
	};
	static const char *const names[] = {"STORE", NULL};
	struct ls ls = {.admin = a, .sort = N_COLUMNS};
	struct command_line line = OPTIONS_LINE(
		a, "ls [STORE]",
		"Lists the objects of STORE (a name, or the store's path), or of all stores.\v"
		"HEADER and BUFFER are the sizes of the ticket: all that is copied and all that is "
		"shared. N is the number of buffers. WHERE is memory, tier (moved to the disk "
		"until somebody gets it), pinned (in memory, and stays there), or packed (in "
		"memory, one of many in a segment). LINKS counts the object's names in all stores "
		"and its leases. AGE is the time since it was written, of which packed objects "
		"tell nothing; the total counts an object in each of its stores.",
		.names = names, .options = options, .own = &ls);

	options_parse(&line, argc, argv);
	_partition_ struct shmstore_partition *p = opening_partition(a);
	if (a->json)
		json_stream_begin("objects");
	else
		table_init(&ls.table, a, columns, N_COLUMNS);
	ls.table.hold = ls.sort < N_COLUMNS;
	if (!isatty(STDOUT_FILENO)) /* else the list itself is seen to grow */
		progress_begin("ls");
	int status = list_all(&ls, p, line.args[0]);
	progress_end();
	if (a->json)
		json_stream_end();
	else
		finish(&ls);
	if (ls.n_unreadable) {
		status = message_fail(shmstore_partition_path(p),
				      "%" PRIu64 " files cannot be read by user %u",
				      ls.n_unreadable, (unsigned)geteuid());
		message_hint("as their user, this shows what is in them");
	}
	if (ls.n_damaged) {
		status = message_fail(shmstore_partition_path(p), "%" PRIu64 " damaged objects",
				      ls.n_damaged);
		message_command(shmstore_partition_path(p), "to see what is wrong with them",
				"verify");
	}
	return status;
}
