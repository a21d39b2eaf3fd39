/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_get.c: "shmstore-admin get STORE KEY [FILE]" and "cat STORE KEY": the raw bytes of one
 * buffer, or of the caller's header. FILE is touched only once the object is mapped; a file that
 * could not be written whole is removed if it was made here. The view is read through write(2):
 * bytes go from shared memory to the file without a copy in between.
 *
 * "put STORE KEY [FILE]": a regular file's size is known, so its bytes are read straight into the
 * object's memory; anything else is gathered first. The store is opened as a kept one, because
 * nobody else would keep what was just put; a store that a process owns is that process's.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <shmstore/inspect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "admin.h"
#include "cleanup.h"
#include "jsonin.h"
#include "opening.h"
#include "options.h"
#include "sysroot.h"

/* The bytes of an object, on their way out or in. */
struct transfer {
	const struct admin *admin;
	/* file: NULL = standard output; of a put, for messages */
	const char *store, *key_text, *file;
	unsigned char key[SHMSTORE_KEY_MAX];
	size_t key_size;
	uint64_t buffer; /* which one */
	bool header;
	const char *data; /* what it is, in the view */
	uint64_t size;
	/* Of a put. */
	unsigned flags;
	int fd;
	bool made_store;
};

static const struct options_row get_options[] = {
	{"buffer", 'n', "N", "the buffer to write, counted from 0 (default: 0)", OPTIONS_NUMBER,
	 offsetof(struct transfer, buffer)},
	{"header", 'H', NULL, "the caller's header instead of a buffer", OPTIONS_FLAG,
	 offsetof(struct transfer, header)},
	{NULL},
};

static int write_all(int fd, const char *data, uint64_t size)
{
	while (size) {
		ssize_t n = write(fd, data, size < (1u << 30) ? (size_t)size : (1u << 30));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		data += n;
		size -= (uint64_t)n;
	}
	return 0;
}

static int write_file(const struct transfer *get)
{
	struct stat st;
	bool made = stat(get->file, &st) < 0 && errno == ENOENT;
	int fd = open(get->file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

	if (fd < 0)
		return message_fail(get->file, "%s", strerror(errno));
	int r = write_all(fd, get->data, get->size);
	if (close(fd) < 0 && r == 0)
		r = -errno;
	if (r < 0) {
		if (made)
			unlink(get->file);
		return message_fail(get->file, "%s%s", strerror(-r),
				    made ? "" : "; it is incomplete now");
	}
	return ADMIN_OK;
}

/* Base64 of the bytes, as the member "data" of a JSON object that is being printed. */
static void print_base64(const char *data, uint64_t size)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *in = (const unsigned char *)data;

	for (uint64_t i = 0; i < size; i += 3) {
		uint32_t n = (uint32_t)in[i] << 16;
		if (i + 1 < size)
			n |= (uint32_t)in[i + 1] << 8;
		if (i + 2 < size)
			n |= in[i + 2];
		putchar(digits[n >> 18]);
		putchar(digits[n >> 12 & 63]);
		putchar(i + 1 < size ? digits[n >> 6 & 63] : '=');
		putchar(i + 2 < size ? digits[n & 63] : '=');
	}
}

static struct json_object *describe(const struct transfer *get)
{
	struct json_object *o = jsonmake_new();

	jsonmake_prose(o, "store", get->store);
	jsonmake_key(o, "key", get->key, get->key_size);
	jsonmake_prose(o, "what", get->header ? "header" : "buffer");
	if (!get->header)
		jsonmake_u64(o, "buffer", get->buffer);
	jsonmake_u64(o, "size", get->size);
	return o;
}

static int deliver(const struct transfer *get)
{
	if (get->file) {
		int status = write_file(get);
		if (status == ADMIN_OK && get->admin->json) {
			struct json_object *o = describe(get);
			jsonmake_prose(o, "file", get->file);
			json_print(o);
		}
		return status;
	}
	if (get->admin->json) {
		json_raw_begin(describe(get), "data");
		print_base64(get->data, get->size);
		puts("\"}");
		return ADMIN_OK;
	}
	int r = write_all(STDOUT_FILENO, get->data, get->size);
	return r < 0 ? message_fail("standard output", "%s", strerror(-r)) : ADMIN_OK;
}

/* Finds the bytes in the view. False: there is no such buffer; said. */
static bool find(struct transfer *get, const struct shmstore_view *view)
{
	size_t n = shmstore_view_n_buffers(view);

	if (get->header) {
		size_t size = 0;
		get->data = shmstore_view_header(view, &size);
		get->size = size;
		return true;
	}
	if (get->buffer >= n) {
		if (n == 0) {
			message_fail(get->key_text, "the object has no buffers, only a header");
			message_hint("to write the header: --header");
		} else {
			message_fail(get->key_text,
				     "there is no buffer %" PRIu64
				     ": the object has %zu, counted from 0",
				     get->buffer, n);
		}
		return false;
	}
	get->data = shmstore_view_buffer(view, get->buffer, &get->size);
	return true;
}

static int get_main(struct admin *a, int argc, char **argv, const char *const *names,
		    const char *usage, const char *help)
{
	static struct transfer get;
	struct shmstore_view *view;
	struct command_line line = OPTIONS_LINE(a, usage, help, .names = names, .n_needed = 2,
						.options = get_options, .own = &get);

	options_parse(&line, argc, argv);
	get.admin = a;
	get.store = line.args[0];
	get.key_text = line.args[1];
	get.file = names[2] && line.args[2] && strcmp(line.args[2], "-") != 0 ? line.args[2] : NULL;
	if (!opening_key(get.key_text, get.key, &get.key_size))
		return ADMIN_FAILED;
	_partition_ struct shmstore_partition *p = opening_partition(a);
	_store_ struct shmstore *s = opening_store(p, get.store);
	int r = shmstore_get(s, get.key, get.key_size, 0, &view);
	if (r < 0)
		return opening_explain_key(p, s, get.key_text, r);
	int status = find(&get, view) ? deliver(&get) : ADMIN_FAILED;
	shmstore_view_unref(view);
	return status;
}

int cmd_get(struct admin *a, int argc, char **argv)
{
	return get_main(
		a, argc, argv, (const char *const[]){"STORE", "KEY", "FILE", NULL},
		"get STORE KEY [FILE]",
		"Writes the bytes of one buffer of an object to FILE, or to standard output where "
		"it is missing or \"-\".\v"
		"KEY is the key's text; bytes that cannot be typed are \\xNN, as ls shows them.");
}

int cmd_cat(struct admin *a, int argc, char **argv)
{
	return get_main(
		a, argc, argv, (const char *const[]){"STORE", "KEY", NULL}, "cat STORE KEY",
		"Writes the bytes of one buffer of an object to standard output; with --json, in "
		"base64 as \"data\".\v"
		"KEY is the key's text; bytes that cannot be typed are \\xNN, as ls shows them.");
}

/* ---- put ------------------------------------------------------------------------------------- */

typedef struct transfer OF;
static const struct options_row options[] = {
	{"replace", 'r', NULL, "take the place of an object of that key", OPTIONS_BITS,
	 offsetof(OF, flags), SHMSTORE_REPLACE},
	{"checksum", 'c', NULL, "keep a checksum of the bytes for verify", OPTIONS_BITS,
	 offsetof(OF, flags), SHMSTORE_CHECKSUM},
	{"pin", 0, NULL, "never move it to the disk tier", OPTIONS_BITS, offsetof(OF, flags),
	 SHMSTORE_PIN},
	{NULL},
};

/* Says why the object could not be put. */
static int explain(const struct transfer *put, struct shmstore_partition *p, int error)
{
	const char *path = shmstore_partition_path(p);
	struct shmstore_partition_info info = {.size = sizeof(info)};
	char why[512];

	snprintf(why, sizeof(why), "%s", shmstore_error_detail());
	if (error == -EEXIST) {
		message_fail(put->key_text, "the store %s holds that key already", put->store);
		message_hint("to take its place: --replace");
	} else if (error == -ENOSPC && shmstore_partition_info(p, &info) == 0) {
		message_fail(put->key_text, "no room for %s: %s of the partition are available",
			     human_size(put->size), human_size(info.bytes_available));
		if (*why) /* the disk tier took no more */
			message_hint("%s", why);
		message_command(path, "to remove what dead processes left", "gc");
		message_command(path, "to enlarge the partition, as root", "init --size SIZE");
	} else {
		message_detail(put->key_text, error);
	}
	return ADMIN_FAILED;
}

static int explain_store(const struct transfer *put, struct shmstore_partition *p,
			 const struct shmstore_store_info *entry, int error)
{
	char path[64];

	if (error != -EBUSY)
		return opening_explain_store(p, put->store, error);
	snprintf(path, sizeof(path), "/proc/%d/comm", entry ? entry->pid : 0);
	_free_ char *command = sysroot_read(put->admin, path);
	if (entry)
		message_fail(put->store, "the store belongs to a live process: pid %d (%s)",
			     entry->pid, command ? command : "?");
	else
		message_fail(put->store, "the store belongs to a live process");
	message_hint("only that process puts into it; put into another store, e.g. %s-admin",
		     put->store);
	return ADMIN_FAILED;
}

/* Reads size bytes, or up to the end. Returns the count or -errno. */
static int64_t read_all(int fd, char *data, uint64_t size)
{
	uint64_t done = 0;

	while (done < size) {
		uint64_t left = size - done;
		ssize_t n = read(fd, data + done, left < (1u << 30) ? (size_t)left : (1u << 30));
		if (interrupt_pending())
			return -EINTR;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (uint64_t)n;
		progress_set(0, done);
	}
	return (int64_t)done;
}

/* A file of known size: into the object's own memory. */
static int put_file(struct transfer *put, struct shmstore_partition *p, struct shmstore *s)
{
	struct shmstore_writer *w;
	char more;
	int r = shmstore_create(s, put->key, put->key_size, 0, &put->size, 1, put->flags, &w);

	if (r < 0)
		return explain(put, p, r);
	int64_t n = read_all(put->fd, shmstore_writer_buffer(w, 0, NULL), put->size);
	if (n < 0 || (uint64_t)n != put->size || read(put->fd, &more, 1) != 0) {
		shmstore_abort(w);
		return message_fail(put->file, "%s",
				    n < 0 ? strerror((int)-n)
					  : "the file changed while it was read");
	}
	r = shmstore_seal(w);
	return r < 0 ? explain(put, p, r) : ADMIN_OK;
}

/* A pipe or a device: gathered in private memory first, because an object's size is fixed at its
 * birth. */
static int put_stream(struct transfer *put, struct shmstore_partition *p, struct shmstore *s)
{
	uint64_t room = 1u << 16;
	_free_ char *data = NULL;
	int64_t n;

	do {
		room *= 2;
		char *grown = realloc(data, room);
		if (!grown)
			return message_fail(put->file, "more bytes than memory can hold");
		data = grown;
		n = read_all(put->fd, data + put->size, room - put->size);
		put->size += n > 0 ? (uint64_t)n : 0;
	} while (n >= 0 && put->size == room);
	if (n < 0)
		return message_fail(put->file, "%s", strerror((int)-n));
	struct iovec buffer = {data, put->size};
	int r = shmstore_put(s, put->key, put->key_size, NULL, 0, &buffer, 1, put->flags);
	return r < 0 ? explain(put, p, r) : ADMIN_OK;
}

/* A store that was made for nothing goes again: opened once more, as one that is not kept, and
 * closed. */
static void remove_store(const struct transfer *put, struct shmstore_partition *p)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	_store_ struct shmstore *s = NULL;

	o.flags = SHMSTORE_OPEN_ADOPT;
	(void)shmstore_open(p, put->store, &o, &s);
}

static int put_object(struct transfer *put, struct shmstore_partition *p, struct shmstore *s)
{
	struct stat st;

	/* before a long stream is read for nothing */
	if (!(put->flags & SHMSTORE_REPLACE) && shmstore_contains(s, put->key, put->key_size) == 1)
		return explain(put, p, -EEXIST);
	if (fstat(put->fd, &st) < 0)
		return message_fail(put->file, "%s", strerror(errno));
	if (S_ISDIR(st.st_mode))
		return message_fail(put->file, "is a directory");
	/* files of /proc say 0 and hold more */
	off_t at = S_ISREG(st.st_mode) && st.st_size > 0 ? lseek(put->fd, 0, SEEK_CUR) : -1;
	if (at < 0 || at > st.st_size)
		return put_stream(put, p, s);
	put->size = (uint64_t)(st.st_size - at);
	return put_file(put, p, s);
}

/* Opens the store for writing, puts, and closes it; it stays because it is a kept one. */
static int put_into_store(struct transfer *put, struct shmstore_partition *p)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	_stores_ struct storelist list = STORELIST_NULL;
	struct shmstore *s = NULL;
	int r = storelist_read(p, &list);
	const struct shmstore_store_info *entry = storelist_find(&list, put->store);

	if (r == 0) {
		o.keep = true;
		/* the store's own stays */
		o.label = entry && entry->label[0] ? entry->label : ADMIN_NAME;
		o.recycle_max = 0;
		o.directory = entry ? entry->path : NULL;
		put->made_store = !entry;
		r = entry && !entry->readable
			    ? -EPERM
			    : shmstore_open(p, entry ? entry->name : put->store, &o, &s);
	}
	if (r < 0)
		return explain_store(put, p, entry, r);
	progress_begin("put");
	int status = put_object(put, p, s);
	progress_end();
	r = shmstore_close(s);
	if (r < 0 && status == ADMIN_OK)
		status = message_detail(put->store, r);
	if (status != ADMIN_OK && put->made_store)
		remove_store(put, p);
	return status;
}

int cmd_put(struct admin *a, int argc, char **argv)
{
	static const char *const names[] = {"STORE", "KEY", "FILE", NULL};
	static struct transfer put;
	struct command_line line =
		OPTIONS_LINE(a, "put STORE KEY [FILE]",
			     "Makes an object with one buffer of FILE, or of standard input where "
			     "it is missing or \"-\". A store that does not exist is made, and "
			     "kept; a store that a live process owns is refused.\v"
			     "KEY is the key's text; bytes that cannot be typed are \\xNN.",
			     .names = names, .n_needed = 2, .options = options, .own = &put);

	options_parse(&line, argc, argv);
	put.admin = a;
	put.store = line.args[0];
	put.key_text = line.args[1];
	put.file = line.args[2] && strcmp(line.args[2], "-") != 0 ? line.args[2] : "standard input";
	if (!opening_key(put.key_text, put.key, &put.key_size))
		return ADMIN_FAILED;
	put.fd = STDIN_FILENO;
	if (line.args[2] && strcmp(line.args[2], "-") != 0) {
		put.fd = open(line.args[2], O_RDONLY | O_CLOEXEC);
		if (put.fd < 0)
			return message_fail(put.file, "%s", strerror(errno));
	}
	_partition_ struct shmstore_partition *p = opening_partition(a);
	/* an unfinished put leaves nothing behind, no new store either */
	interrupt_catch();
	int status = put_into_store(&put, p);
	interrupt_finish();
	if (status == ADMIN_OK) {
		struct json_object *o = jsonmake_new();

		jsonmake_prose(o, "store", put.store);
		jsonmake_key(o, "key", put.key, put.key_size);
		jsonmake_u64(o, "size", put.size);
		jsonmake_flag(o, "created_store", put.made_store);
		json_say(a, o,
			 isatty(STDOUT_FILENO) ? "{key:raw}: {size:size} put into {store}"
						 "[created_store? (a new store)]\n"
					       : "");
	}
	if (put.fd != STDIN_FILENO)
		close(put.fd);
	return status;
}

/* ---- rm -------------------------------------------------------------------------------------- */

/*
 * Removes objects of a store that nobody has open, or the store. A live owner's store is its own to
 * change: its books and its caches say what it holds. The lock of the store, taken here as its
 * owner would, keeps the two apart.
 */
struct rm {
	struct admin *admin;
	const char *store;
	struct json_object *keys; /* with --json: those that were removed */
	uint64_t n_removed, n_missing, n_failed;
};

/* The store as one that stays (or goes, with everything in it) when it is closed. 0, or the exit
 * status once everything is said. */
static int take_store(struct shmstore_partition *p, const struct shmstore_store_info *e, bool keep,
		      struct shmstore **ret)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	int r;

	o.keep = keep;
	o.flags = SHMSTORE_OPEN_ADOPT;
	o.directory = e->path;
	o.label = e->label[0] ? e->label : NULL;
	o.daemon = SHMSTORE_DAEMON_OFF;
	r = e->readable ? shmstore_open(p, e->name, &o, ret) : -EPERM;
	if (r != -EBUSY)
		return r < 0 ? opening_explain_store(p, e->name[0] ? e->name : e->path, r)
			     : ADMIN_OK;
	message_detail(e->name, r);
	message_hint("only that process removes what is in it; end it, and its store goes with it");
	return ADMIN_FAILED;
}

static void list_key(struct rm *rm, const void *key, size_t size)
{
	struct json_object *o;

	if (!rm->keys)
		return;
	o = jsonmake_new();
	jsonmake_key(o, "key", key ? key : "", size);
	jsonmake_append(rm->keys, o);
}

static void remove_key(struct rm *rm, struct shmstore *s, const char *text)
{
	unsigned char key[SHMSTORE_KEY_MAX];
	size_t size;
	int r;

	if (!opening_key(text, key, &size)) {
		rm->n_failed++;
		return;
	}
	r = shmstore_delete(s, key, size);
	if (r == 0) {
		rm->n_removed++;
		list_key(rm, key, size);
	} else if (r == -ENOENT) {
		rm->n_missing++;
		message_fail(text, "the store %s has no object of that key", rm->store);
	} else {
		rm->n_failed++;
		message_detail(text, r);
	}
}

static int count(const struct shmstore_object_info *info, void *arg)
{
	struct rm *rm = arg;

	rm->n_removed++;
	if (!info->error)
		list_key(rm, info->key, info->key_size);
	return 0;
}

static int remove_all(struct rm *rm, struct shmstore_partition *p, const struct command_line *line)
{
	bool whole = line->n_many == 0;
	_stores_ struct storelist list = STORELIST_NULL;
	struct shmstore *s;
	int r = storelist_read(p, &list);

	if (r < 0)
		return message_error(shmstore_partition_path(p), r);
	const struct shmstore_store_info *e = storelist_find(&list, rm->store);
	int status = e ? take_store(p, e, e->keep && !whole, &s)
		       : opening_explain_store(p, rm->store, -ENOENT);
	if (status)
		return status;
	if (whole)
		r = shmstore_foreach(s, count, rm);
	for (size_t i = 0; i < line->n_many; i++)
		remove_key(rm, s, line->many_args[i]);
	r = shmstore_close(s);
	/* Leases that have not ended keep the directory, and what they keep in memory. */
	if (r == 0 && whole)
		r = shmstore_partition_reap(p, e->path, SHMSTORE_GC_LEASES, NULL, NULL, NULL, NULL);
	if (r < 0 && r != -ENOENT)
		return message_detail(rm->store, r);
	struct json_object *o = jsonmake_new();
	jsonmake_prose(o, "partition", shmstore_partition_path(p));
	jsonmake_prose(o, "store", rm->store);
	jsonmake_flag(o, "removed_store", whole);
	jsonmake_child(o, "removed", rm->keys);
	if (!rm->admin->json)
		jsonmake_u64(o, "n", rm->n_removed);
	json_say(rm->admin, o,
		 whole ? "{store}: removed, with {n} objects\n" : "{store}: {n} objects removed\n");
	return rm->n_failed || rm->n_missing ? ADMIN_FAILED : ADMIN_OK;
}

int cmd_rm(struct admin *a, int argc, char **argv)
{
	static const char *const names[] = {"STORE", "KEY", NULL};
	struct command_line line = OPTIONS_LINE(
		a, "rm STORE [KEY...]",
		"Removes objects of STORE (a name, or the store's path), or with no KEY the store "
		"with all that is in it, objects that only tickets keep too.\v"
		"Only of stores that no live process has open: kept ones and dead ones. What other "
		"stores link stays theirs. Exit status 1 if there is no such store or key, or its "
		"owner lives.",
		.names = names, .n_needed = 1, .many = true);
	struct rm rm = {.admin = a};

	options_parse(&line, argc, argv);
	rm.store = line.args[0];
	_partition_ struct shmstore_partition *p = opening_partition(a);
	rm.keys = a->json ? jsonmake_new_list() : NULL;
	return remove_all(&rm, p, &line);
}
