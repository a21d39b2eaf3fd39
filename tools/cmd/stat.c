/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_stat.c: "shmstore-admin stat STORE KEY": everything about one object: what the directory says
 * (sizes, links, inode), where its buffers lie (from a view), and which other stores link the same
 * inode (from a walk of them all, ended as soon as every link is found). A demoted object is not
 * brought back to be looked at: of its buffers only the size is known.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "fields.h"
#include "jsonin.h"
#include "message.h"
#include "opening.h"
#include "options.h"
#include "progress.h"
#include "table.h"
#include "tierstate.h"

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

static void format_time(time_t seconds, char *ret_text, size_t size)
{
	struct tm tm;

	if (!localtime_r(&seconds, &tm) ||
	    strftime(ret_text, size, "%Y-%m-%d %H:%M:%S %z", &tm) == 0)
		snprintf(ret_text, size, "%lld", (long long)seconds);
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
		format_time((time_t)jsonin_real(j, "mtime"), when, sizeof(when));
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
