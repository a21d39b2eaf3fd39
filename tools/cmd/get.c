/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_get.c: "shmstore-admin get STORE KEY [FILE]" and "cat STORE KEY": the raw bytes of one
 * buffer, or of the caller's header. FILE is touched only once the object is mapped; a file that
 * could not be written whole is removed if it was made here. The view is read through write(2):
 * bytes go from shared memory to the file without a copy in between.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jsonin.h"
#include "message.h"
#include "opening.h"
#include "options.h"

struct get {
	const struct admin *admin;
	const char *store, *key_text, *file; /* file NULL = standard output */
	unsigned char key[SHMSTORE_KEY_MAX];
	size_t key_size;
	uint64_t buffer; /* which one */
	bool header;
	const char *data; /* what it is, in the view */
	uint64_t size;
};

typedef struct get OF;
static const struct options_row options[] = {
	{"buffer", 'n', "N", "the buffer to write, counted from 0 (default: 0)", OPTIONS_NUMBER,
	 offsetof(OF, buffer)},
	{"header", 'H', NULL, "the caller's header instead of a buffer", OPTIONS_FLAG,
	 offsetof(OF, header)},
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

static int write_file(const struct get *get)
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

static struct json_object *describe(const struct get *get)
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

static int deliver(const struct get *get)
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
		json_raw_end();
		return ADMIN_OK;
	}
	int r = write_all(STDOUT_FILENO, get->data, get->size);
	return r < 0 ? message_fail("standard output", "%s", strerror(-r)) : ADMIN_OK;
}

/* Finds the bytes in the view. False: there is no such buffer; said. */
static bool find(struct get *get, const struct shmstore_view *view)
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

static int run(struct get *get)
{
	struct shmstore_view *view;

	if (!opening_key(get->key_text, get->key, &get->key_size))
		return ADMIN_FAILED;
	_partition_ struct shmstore_partition *p = opening_partition(get->admin);
	_store_ struct shmstore *s = opening_store(p, get->store);
	int r = shmstore_get(s, get->key, get->key_size, 0, &view);
	if (r < 0)
		return opening_explain_key(p, s, get->key_text, r);
	int status = find(get, view) ? deliver(get) : ADMIN_FAILED;
	shmstore_view_unref(view);
	return status;
}

static int get_main(struct admin *a, int argc, char **argv, const char *const *names,
		    const char *usage, const char *help)
{
	static struct get get;
	struct command_line line = OPTIONS_LINE(a, usage, help, .names = names, .n_needed = 2,
						.options = options, .own = &get);

	options_parse(&line, argc, argv);
	get.admin = a;
	get.store = line.args[0];
	get.key_text = line.args[1];
	get.file = names[2] && line.args[2] && strcmp(line.args[2], "-") != 0 ? line.args[2] : NULL;
	return run(&get);
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
