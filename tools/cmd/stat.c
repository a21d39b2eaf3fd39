/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_stat.c: "shmstore-admin stat STORE KEY": everything about one object: what the directory says (sizes, links, inode),
 * where its buffers lie (from a view), and which other stores link the same inode (from a walk of them all, ended as soon as
 * every link is found). A demoted object is not brought back to be looked at: of its buffers only the size is known.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "human.h"
#include "jsonout.h"
#include "keytext.h"
#include "message.h"
#include "opening.h"
#include "options.h"
#include "progress.h"
#include "storelist.h"
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
	struct table table;
	uint64_t n_names, n_seen; /* of its links found; objects walked */
	bool found;
};

static int match_key(const struct shmstore_object_info *info, void *arg)
{
	struct object *o = arg;

	progress_set(++o->n_seen, 0);
	if (info->key_size != o->key_size || !info->key || memcmp(info->key, o->key, o->key_size) != 0)
		return 0;
	o->info = *info;
	o->name = strdup(info->name);
	if (!o->name)
		message_no_memory();
	o->found = true;
	return 1;
}

/* One name of the object's inode. */
static void add_name(struct object *o, const struct storelist_entry *entry, const void *key, size_t key_size)
{
	o->n_names++;
	if (o->admin->json) {
		struct json_object *item = jsonmake_new();
		jsonmake_prose(item, "store", entry->name);
		jsonmake_i64(item, "pid", entry->pid);
		jsonmake_key(item, "key", key ? key : "", key_size);
		jsonmake_append(o->sharers, item);
	} else {
		table_row(&o->table);
		table_text(&o->table, 0, entry->name);
		table_printf(&o->table, 1, "%d", entry->pid);
		table_key(&o->table, 2, key ? key : "", key_size);
	}
}

struct sharer {
	struct object *object;
	const struct storelist_entry *entry;
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
	struct storelist stores;
	int r = storelist_read(p, &stores);
	const struct storelist_entry *own = r == 0 ? storelist_find(&stores, own_path) : NULL;

	if (own)
		add_name(o, own, o->key, o->key_size);
	for (size_t i = 0; r == 0 && i < stores.n_stores && o->n_names < o->info.links; i++) {
		struct sharer sharer = {o, &stores.stores[i], own && own == &stores.stores[i]};
		struct shmstore *s;
		if (!stores.stores[i].readable || storelist_open(p, &stores.stores[i], &s) < 0)
			continue;
		shmstore_foreach(s, match_inode, &sharer);
		shmstore_close(s);
	}
	storelist_deinit(&stores);
}

/* The tier file: of a demoted object, or of one whose copy is good still. */
static void find_tier_file(struct object *o, struct shmstore_partition *p, const char *store)
{
	char link[PATH_MAX];
	struct stat st;
	int n = snprintf(link, sizeof(link), "%s/%s/%s", store, o->info.demoted ? "objects" : "clean", o->name);

	if (n >= PATH_MAX || !tierstate_file(p, link, o->tier_file))
		o->tier_file[0] = '\0';
	else if (stat(o->tier_file, &st) == 0)
		o->tier_blocks = (uint64_t)st.st_blocks * 512;
}

/* A buffer's place in the file, a packed object's in the file that it would be: the first one begins behind the header, the others lie as in the view. */
static uint64_t buffer_offset(const struct object *o, size_t i, uint64_t *ret_size)
{
	const char *first = shmstore_view_buffer(o->view, 0, NULL);
	const char *buffer = shmstore_view_buffer(o->view, i, ret_size);

	return buffer && first ? o->info.header_size + (uint64_t)(buffer - first) : o->info.header_size;
}

static void format_time(int64_t ns, char *ret_text, size_t size)
{
	time_t seconds = (time_t)(ns / 1000000000);
	struct tm tm;

	if (!localtime_r(&seconds, &tm) || strftime(ret_text, size, "%Y-%m-%d %H:%M:%S %z", &tm) == 0)
		snprintf(ret_text, size, "%lld", (long long)seconds);
}

static void print_json(struct object *o)
{
	struct json_object *j = jsonmake_new();
	size_t metadata = 0;

	jsonmake_prose(j, "store", o->store);
	jsonmake_key(j, "key", o->key, o->key_size);
	jsonmake_u64(j, "header_size", o->info.header_size);
	jsonmake_u64(j, "buffer_size", o->info.buffer_size);
	jsonmake_u64(j, "blocks", o->info.blocks);
	jsonmake_u64(j, "inode", o->info.inode);
	jsonmake_u64(j, "links", o->info.links);
	jsonmake_prose(j, "name", o->name);
	if (o->info.packed)
		jsonmake_null(j, "mtime");
	else
		jsonmake_real(j, "mtime", (double)o->info.mtime_ns / 1e9);
	jsonmake_flag(j, "checksum", o->info.checksum);
	jsonmake_flag(j, "demoted", o->info.demoted);
	jsonmake_flag(j, "pinned", o->info.pinned);
	jsonmake_flag(j, "packed", o->info.packed);
	jsonmake_prose(j, "tier_file", o->tier_file[0] ? o->tier_file : NULL);
	jsonmake_u64(j, "tier_blocks", o->tier_blocks);
	char generation[17];
	snprintf(generation, sizeof(generation), "%016" PRIx64, o->info.generation);
	jsonmake_prose(j, "generation", generation);
	jsonmake_prose(j, "error", o->info.error ? shmstore_strerror(o->info.error) : NULL);
	struct json_object *buffers = jsonmake_child(j, "buffers", jsonmake_new_list());
	size_t n = o->view ? shmstore_view_n_buffers(o->view) : 0;
	for (size_t i = 0; i < n; i++) {
		uint64_t size = 0;
		struct json_object *b = jsonmake_new();
		jsonmake_u64(b, "offset", buffer_offset(o, i, &size));
		jsonmake_u64(b, "size", size);
		jsonmake_append(buffers, b);
	}
	if (o->view)
		shmstore_view_header(o->view, &metadata);
	jsonmake_u64(j, "metadata_size", metadata);
	jsonmake_child(j, "names", o->sharers);
	jsonmake_u64(j, "leases", o->info.links - o->n_names);
	json_print(j);
}

static void print_line(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void print_line(const char *name, const char *format, ...)
{
	va_list args;

	printf("%-12s", name);
	va_start(args, format);
	vprintf(format, args); // NOLINT(clang-analyzer-valist.Uninitialized): it is not
	va_end(args);
	putchar('\n');
}

static void print_buffers(struct object *o)
{
	static const struct table_column columns[] = {
		{"BUFFER", TABLE_RIGHT}, {"OFFSET", TABLE_RIGHT}, {"SIZE", TABLE_RIGHT}};
	size_t n = shmstore_view_n_buffers(o->view);
	struct table t;

	if (!n)
		return;
	putchar('\n');
	table_init(&t, o->admin, columns, 3);
	for (size_t i = 0; i < n; i++) {
		uint64_t size = 0, offset = buffer_offset(o, i, &size);
		table_row(&t);
		table_count(&t, 0, i);
		table_count(&t, 1, offset);
		table_size(&t, 2, size);
	}
	table_finish(&t);
}

static void print_where(const struct object *o)
{
	char size[HUMAN_SIZE];

	print_line("where", "%s",
		   o->info.demoted  ? "in the disk tier"
		   : o->info.pinned ? "in memory, pinned"
		   : o->info.packed ? "in memory, in a segment"
				    : "in memory");
	if (!o->tier_file[0])
		return;
	char *path = keytext_new(o->tier_file, strlen(o->tier_file));
	print_line("tier file", "%s", path);
	print_line("on disk", "%s", human_bytes(o->tier_blocks, o->admin->bytes, size));
	free(path);
}

static void print_sizes(const struct object *o)
{
	const bool exact = o->admin->bytes;
	char size[HUMAN_SIZE];
	size_t metadata = 0;

	if (o->info.demoted) {
		print_line("header", "%s", human_bytes(o->info.header_size, exact, size));
		print_line("buffers", "%s", human_bytes(o->info.buffer_size, exact, size));
		return;
	}
	if (o->view)
		shmstore_view_header(o->view, &metadata);
	print_line("header", "%s, %zu bytes of it the caller's", human_bytes(o->info.header_size, exact, size),
		   metadata);
	print_line("buffers", "%s in %" PRIu64, human_bytes(o->info.buffer_size, exact, size), o->info.n_buffers);
}

static void print_text(struct object *o)
{
	char *key = keytext_new(o->key, o->key_size);
	char *store = keytext_new(o->store, strlen(o->store));
	char size[HUMAN_SIZE], when[64];
	bool exact = o->admin->bytes;

	print_line("key", "%s", key);
	free(key);
	print_line("store", "%s", store);
	free(store);
	if (!o->info.packed)
		print_line("file", "%s", o->name);
	print_sizes(o);
	print_where(o);
	print_line("memory", "%s", human_bytes(o->info.blocks, exact, size));
	if (!o->info.packed) {
		format_time(o->info.mtime_ns, when, sizeof(when));
		print_line("written", "%s", when);
	}
	print_line("generation", "%016" PRIx64, o->info.generation);
	if (!o->info.demoted)
		print_line("checksum", "%s", o->info.checksum ? "yes" : "no");
	print_line("inode", "%" PRIu64, o->info.inode);
	print_line("links", "%" PRIu64 ": %" PRIu64 " in stores, %" PRIu64 " leased", o->info.links, o->n_names,
		   o->info.links - o->n_names);
	if (o->view)
		print_buffers(o);
	putchar('\n');
	table_finish(&o->table);
}

static int look(struct object *o, struct shmstore_partition *p, struct shmstore *s, const char *text)
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
	static const struct argp argp = OPTIONS_ARGP(
		NULL, options_common, "stat STORE KEY",
		"Everything about one object: sizes, buffers and their offsets in the file, inode, where it is, and "
		"who else links it.\v"
		"An object in the disk tier stays there; of its buffers only the size is known then.");
	static const char *const names[] = {"STORE", "KEY", NULL};
	static const struct table_column columns[] = {{"LINKED BY", 0}, {"PID", TABLE_RIGHT}, {"AS", 0}};
	struct command_line line = {.admin = a, .names = names, .n_needed = 2};
	static struct object o;
	struct shmstore_partition *p;
	struct shmstore *s;

	options_parse(&argp, &line, argc, argv);
	o.admin = a;
	o.store = line.args[0];
	if (!opening_key(line.args[1], o.key, &o.key_size))
		return ADMIN_FAILED;
	int status = opening_partition(a, &p);
	if (status)
		return status;
	status = opening_store(p, line.args[0], &s);
	if (status == ADMIN_OK) {
		if (a->json)
			o.sharers = jsonmake_new_list();
		else
			table_init(&o.table, a, columns, 3);
		status = look(&o, p, s, line.args[1]);
		if (o.found && a->json)
			print_json(&o);
		else if (o.found)
			print_text(&o);
		shmstore_view_unref(o.view);
		free(o.name);
		shmstore_close(s);
	}
	shmstore_partition_unref(p);
	return status;
}
