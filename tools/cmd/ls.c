/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_ls.c: "shmstore-admin ls [STORE]": the objects of one store or of all. Printed while they are
 * found: a million objects need no memory. A store that goes meanwhile is no error; one that may
 * not be read is.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "admin.h"
#include "fields.h"
#include "jsonin.h"
#include "opening.h"
#include "options.h"
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
		table_row_bold(t);
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
		fputs("{\"objects\":[", stdout);
	else
		table_init(&ls.table, a, columns, N_COLUMNS);
	ls.table.hold = ls.sort < N_COLUMNS;
	if (!isatty(STDOUT_FILENO)) /* else the list itself is seen to grow */
		progress_begin("ls");
	int status = list_all(&ls, p, line.args[0]);
	progress_end();
	if (a->json)
		puts("]}");
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

/* ---- stat ------------------------------------------------------------------------------------ */

/*
 * Everything about one object: the directory's words on it (sizes, links, inode), where its buffers
 * lie (from a view), and which other stores link the same inode (from a walk of them all, ended as
 * soon as every link is found). A demoted object is not brought back to be looked at: of its
 * buffers only the size is known.
 */

struct object {
	const struct admin *admin;
	const char *store;
	unsigned char key[SHMSTORE_KEY_MAX];
	size_t key_size;
	struct shmstore_object_info info; /* without its pointers */
	char *name;                       /* its file */
	struct shmstore_view *view;       /* NULL: it cannot be mapped, or is demoted */
	char tier_file[PATH_MAX];         /* "": it has none */
	uint64_t tier_blocks;             /* bytes that the tier file takes on disk */
	struct json_object *sharers;
	uint64_t n_names, n_seen; /* of its links found; objects walked */
	bool found;
};

static int match_key(const struct shmstore_object_info *info, void *arg)
{
	struct object *o = arg;

	progress_set(++o->n_seen, 0);
	if (info->key_size != o->key_size || !info->key ||
	    memcmp(info->key, o->key, o->key_size) != 0)
		return 0;
	o->info = *info;
	o->name = strdup(info->name);
	if (!o->name)
		message_no_memory();
	o->found = true;
	return 1;
}

/* One name of the object's inode. */
static void add_name(struct object *o, const struct shmstore_store_info *entry, const void *key,
		     size_t key_size)
{
	struct json_object *item = jsonmake_append(o->sharers, jsonmake_new());

	o->n_names++;
	jsonmake_prose(item, "store", entry->name);
	jsonmake_i64(item, "pid", entry->pid);
	jsonmake_key(item, "key", key ? key : "", key_size);
}

struct sharer {
	struct object *object;
	const struct shmstore_store_info *entry;
	bool own; /* the store that the object was asked of */
};

/* A segment's inode is that of all objects in it: each of them has its own generation. */
static bool is_same(const struct shmstore_object_info *info, const struct object *o)
{
	return info->inode == o->info.inode &&
	       (!o->info.packed || (info->packed && info->generation == o->info.generation));
}

static int match_inode(const struct shmstore_object_info *info, void *arg)
{
	struct sharer *sharer = arg;
	struct object *o = sharer->object;

	progress_set(++o->n_seen, 0);
	if (!is_same(info, o) || (sharer->own && strcmp(info->name, o->name) == 0))
		return 0;
	add_name(o, sharer->entry, info->key, info->key_size);
	return o->n_names == o->info.links;
}

/* All names of the object's inode, over all stores; links that are left are leases. */
static void find_sharers(struct object *o, struct shmstore_partition *p, const char *own_path)
{
	_stores_ struct storelist stores = STORELIST_NULL;

	storelist_read(p, &stores);
	const struct shmstore_store_info *own = storelist_find(&stores, own_path);
	if (own)
		add_name(o, own, o->key, o->key_size);
	for (size_t i = 0; i < stores.n_stores && o->n_names < o->info.links; i++) {
		struct sharer sharer = {o, &stores.stores[i], own == &stores.stores[i]};
		_store_ struct shmstore *s = NULL;
		if (stores.stores[i].readable && storelist_open(p, &stores.stores[i], &s) == 0)
			shmstore_foreach(s, match_inode, &sharer);
	}
}

/* The tier file: of a demoted object, or of one whose copy is good still. */
static void find_tier_file(struct object *o, struct shmstore_partition *p, const char *store)
{
	char link[PATH_MAX];
	struct stat st;
	int n = snprintf(link, sizeof(link), "%s/%s/%s", store,
			 o->info.demoted ? "objects" : "clean", o->name);

	if (n >= PATH_MAX || !tierstate_file(p, link, o->tier_file))
		o->tier_file[0] = '\0';
	else if (stat(o->tier_file, &st) == 0)
		o->tier_blocks = (uint64_t)st.st_blocks * 512;
}

/* A buffer's place in the file, a packed object's in the file that it would be: the first one
 * begins behind the header, the others lie as in the view. */
static uint64_t buffer_offset(const struct object *o, size_t i, uint64_t *ret_size)
{
	const char *first = shmstore_view_buffer(o->view, 0, NULL);
	const char *buffer = shmstore_view_buffer(o->view, i, ret_size);

	return buffer && first ? o->info.header_size + (uint64_t)(buffer - first)
			       : o->info.header_size;
}

static struct json_object *make_document(const struct object *o)
{
	struct json_object *j = jsonmake_new(), *buffers;
	size_t metadata = 0, n = o->view ? shmstore_view_n_buffers(o->view) : 0;
	char generation[17];

	fields_of(j, o, PROSE(store), PLACE("key"), FIELD(info.header_size, "header_size"),
		  FIELD(info.buffer_size, "buffer_size"), FIELD(info.blocks, "blocks"),
		  FIELD(info.inode, "inode"), FIELD(info.links, "links"), PROSE(name),
		  FIELD_AS(FIELD_REAL_NS, info.mtime_ns, "mtime"), FIELD(info.checksum, "checksum"),
		  FIELD(info.demoted, "demoted"), FIELD(info.pinned, "pinned"),
		  FIELD(info.packed, "packed"), FIELD_AS(FIELD_PROSE_ARRAY, tier_file, "tier_file"),
		  SAME(tier_blocks), PLACE("generation"), PLACE("error"));
	jsonmake_key(j, "key", o->key, o->key_size);
	if (o->info.packed)
		jsonmake_null(j, "mtime");
	if (!o->tier_file[0])
		jsonmake_null(j, "tier_file");
	snprintf(generation, sizeof(generation), "%016" PRIx64, o->info.generation);
	jsonmake_prose(j, "generation", generation);
	jsonmake_prose(j, "error", o->info.error ? shmstore_strerror(o->info.error) : NULL);
	buffers = jsonmake_child(j, "buffers", jsonmake_new_list());
	for (size_t i = 0; i < n; i++) {
		struct json_object *b = jsonmake_append(buffers, jsonmake_new());
		uint64_t size = 0;

		jsonmake_u64(b, "offset", buffer_offset(o, i, &size));
		jsonmake_u64(b, "size", size);
	}
	if (o->view)
		shmstore_view_header(o->view, &metadata);
	jsonmake_u64(j, "metadata_size", metadata);
	jsonmake_child(j, "names", o->sharers);
	jsonmake_u64(j, "leases", o->info.links - o->n_names);
	if (!o->admin->json)
		jsonmake_u64(j, "n_buffers", o->info.n_buffers);
	return j;
}

static void show_number(struct table *t, size_t column, const struct json_object *b)
{
	(void)b;
	table_count(t, column, t->n_lines - 1);
}

static const struct table_column buffers[] = {{"BUFFER", TABLE_RIGHT, .show = show_number},
					      {"OFFSET", FIGURE_COUNT, "offset"},
					      {"SIZE", FIGURE_SIZE, "size"}};
static const struct table_column names[] = {{"LINKED BY", FIGURE_TEXT, "store"},
					    {"PID", FIGURE_COUNT, "pid"},
					    {"AS", FIGURE_RAW, "key"}};

static void print_text(const struct admin *a, const struct json_object *j)
{
	time_t written = (time_t)jsonin_real(j, "mtime");
	struct tm tm;
	char when[64];

	figure_print(j, a->bytes,
		     "key         {key:raw}\n"
		     "store       {store}\n"
		     "[packed?|file        {name}\n]"
		     "header      {header_size:size}"
		     "[demoted?|, {metadata_size} bytes of it the caller's]\n"
		     "buffers     {buffer_size:size}[demoted?| in {n_buffers}]\n"
		     "where       in [demoted?the disk tier|memory[pinned?, pinned|"
		     "[packed?, in a segment]]]\n"
		     "[has tier_file?tier file   {tier_file}\non disk     {tier_blocks:size}\n]"
		     "memory      {blocks:size}\n");
	if (jsonin_has(j, "mtime")) {
		if (!localtime_r(&written, &tm) ||
		    strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S %z", &tm) == 0)
			snprintf(when, sizeof(when), "%lld", (long long)written);
		printf("written     %s\n", when);
	}
	figure_print(j, a->bytes,
		     "generation  {generation}\n"
		     "[demoted?|checksum    [checksum?yes|no]\n]"
		     "inode       {inode}\n"
		     "links       {links}: ");
	printf("%zu in stores, %" PRIu64 " leased\n", jsonin_count(j, "names"),
	       jsonin_u64(j, "leases"));
	if (jsonin_count(j, "buffers")) {
		putchar('\n');
		TABLE_LIST(a, buffers, j, "buffers");
	}
	putchar('\n');
	TABLE_LIST(a, names, j, "names");
}

static int look(struct object *o, struct shmstore_partition *p, struct shmstore *s,
		const char *text)
{
	int status = ADMIN_OK;

	progress_begin("stat");
	int r = shmstore_foreach(s, match_key, o);
	if (r < 0 || !o->found) {
		progress_end();
		return opening_explain_key(p, s, text, r < 0 ? r : -ENOENT);
	}
	find_tier_file(o, p, shmstore_path(s));
	r = o->info.demoted ? 0 : shmstore_get(s, o->key, o->key_size, 0, &o->view);
	if (r < 0) {
		o->view = NULL;
		if (!o->info.error)
			o->info.error = r;
		status = opening_explain_key(p, s, text, r);
	}
	find_sharers(o, p, shmstore_path(s));
	progress_end();
	/* a link may have come or gone since it was looked at */
	if (o->n_names > o->info.links)
		o->info.links = o->n_names;
	return status;
}

int cmd_stat(struct admin *a, int argc, char **argv)
{
	static const char *const arguments[] = {"STORE", "KEY", NULL};
	struct command_line line =
		OPTIONS_LINE(a, "stat STORE KEY",
			     "Everything about one object: sizes, buffers and their offsets in the "
			     "file, inode, where it is, and who else links it.\v"
			     "An object in the disk tier stays there; of its buffers only the size "
			     "is known then.",
			     .names = arguments, .n_needed = 2);
	static struct object o;

	options_parse(&line, argc, argv);
	o.admin = a;
	o.store = line.args[0];
	if (!opening_key(line.args[1], o.key, &o.key_size))
		return ADMIN_FAILED;
	_partition_ struct shmstore_partition *p = opening_partition(a);
	_store_ struct shmstore *s = opening_store(p, o.store);
	o.sharers = jsonmake_new_list();
	int status = look(&o, p, s, line.args[1]);
	if (o.found)
		json_show(a, make_document(&o), print_text);
	shmstore_view_unref(o.view);
	free(o.name);
	return status;
}
