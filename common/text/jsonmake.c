/* SPDX-License-Identifier: Apache-2.0 */
/* jsonmake.c: a thin cover of json-c, which aborts where it is given NULL and does
 * not care for valid UTF-8. */
#include "jsonmake.h"

#include <ctype.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- printable text -------------------------------------------------------------------------- */

/* Controls of the second block, marks of lines and of direction: these could upset a terminal. */
static bool upsets(uint32_t code)
{
	return code < 0xa0 || code == 0x2028 || code == 0x2029 ||
	       (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

/* Bytes of the printable UTF-8 sequence that text begins with, 1 for printable ASCII; 0: not
 * printable. */
static size_t printable_sequence(const unsigned char *text, size_t size)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	unsigned char c = size ? text[0] : 0;
	size_t n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
	uint32_t code;

	if (c < 0x80)
		return c >= 0x20 && c != 0x7f;
	if (c < 0xc2 || c >= 0xf5 || n > size)
		return 0;
	code = (uint32_t)c & (0x7fu >> n);
	for (size_t i = 1; i < n; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (text[i] & 0x3f);
	}
	if (code < least[n] || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff || upsets(code))
		return 0;
	return n;
}

bool printable_is(const void *text, size_t size)
{
	const unsigned char *in = text;

	for (size_t i = 0; i < size;) {
		size_t n = printable_sequence(in + i, size - i);

		if (!n)
			return false;
		i += n;
	}
	return true;
}

static bool is_escape(const unsigned char *text, size_t size)
{
	return size >= 4 && text[0] == '\\' && text[1] == 'x' && isxdigit(text[2]) &&
	       isxdigit(text[3]);
}

char *printable_new(const void *text, size_t size)
{
	const unsigned char *in = text;
	char *made = malloc(size * 4 + 1), *out = made;

	if (!made)
		return NULL;
	for (size_t i = 0; i < size;) {
		size_t n = printable_sequence(in + i, size - i);

		if (n && !is_escape(in + i, size - i)) {
			while (n--)
				*out++ = (char)in[i++];
		} else {
			out += sprintf(out, "\\x%02x", in[i++]);
		}
	}
	*out = '\0';
	return made;
}

static unsigned hex(unsigned char c)
{
	return isdigit(c) ? (unsigned)(c - '0') : (unsigned)(tolower(c) - 'a' + 10);
}

bool printable_parse(const char *text, void *ret, size_t room, size_t *ret_size)
{
	unsigned char *out = ret;
	size_t n = 0;

	while (*text) {
		const unsigned char *in = (const unsigned char *)text;

		if (n == room)
			return false;
		/* A NUL ends the text, so is_escape() never looks past it. */
		if (in[0] == '\\' && in[1] == 'x' && in[2] && is_escape(in, 4)) {
			out[n++] = (unsigned char)(hex(in[2]) << 4 | hex(in[3]));
			text += 4;
		} else {
			out[n++] = in[0];
			text++;
		}
	}
	*ret_size = n;
	return true;
}

/* ---- documents ------------------------------------------------------------------------------- */

static _Thread_local bool failed;

void jsonmake_begin(void)
{
	failed = false;
}

struct json_object *jsonmake_end(struct json_object *o)
{
	if (!failed)
		return o;
	json_object_put(o);
	return NULL;
}

static struct json_object *checked(struct json_object *o)
{
	if (!o)
		failed = true;
	return o;
}

struct json_object *jsonmake_new(void)
{
	return checked(json_object_new_object());
}

struct json_object *jsonmake_new_list(void)
{
	return checked(json_object_new_array());
}

struct json_object *jsonmake_child(struct json_object *o, const char *name,
				   struct json_object *child)
{
	if (o && json_object_object_add(o, name, child) == 0)
		return child;
	failed = true;
	json_object_put(child);
	return NULL;
}

struct json_object *jsonmake_append(struct json_object *list, struct json_object *item)
{
	if (list && json_object_array_add(list, item) == 0)
		return item;
	failed = true;
	json_object_put(item);
	return NULL;
}

void jsonmake_append_u64(struct json_object *list, uint64_t value)
{
	jsonmake_append(list, checked(json_object_new_uint64(value)));
}

void jsonmake_u64(struct json_object *o, const char *name, uint64_t value)
{
	jsonmake_child(o, name, checked(json_object_new_uint64(value)));
}

void jsonmake_i64(struct json_object *o, const char *name, int64_t value)
{
	jsonmake_child(o, name, checked(json_object_new_int64(value)));
}

void jsonmake_real(struct json_object *o, const char *name, double value)
{
	char text[64];

	snprintf(text, sizeof(text), "%.3f", value);
	jsonmake_child(o, name, checked(json_object_new_double_s(value, text)));
}

void jsonmake_flag(struct json_object *o, const char *name, bool value)
{
	jsonmake_child(o, name, checked(json_object_new_boolean(value)));
}

void jsonmake_null(struct json_object *o, const char *name)
{
	jsonmake_child(o, name, NULL);
}

static struct json_object *bytes_of(const void *bytes, size_t size)
{
	char *escaped = printable_new(bytes, size);
	struct json_object *o = escaped ? json_object_new_string(escaped) : NULL;

	free(escaped);
	return checked(o);
}

static struct json_object *text_of(const char *text)
{
	size_t n = strlen(text);

	return printable_is(text, n) ? checked(json_object_new_string(text)) : bytes_of(text, n);
}

void jsonmake_text(struct json_object *o, const char *name, const char *text)
{
	if (text)
		jsonmake_child(o, name, text_of(text));
	else
		jsonmake_null(o, name);
}

void jsonmake_append_text(struct json_object *list, const char *text)
{
	jsonmake_append(list, text_of(text));
}

void jsonmake_key(struct json_object *o, const char *name, const void *key, size_t key_size)
{
	if (key)
		jsonmake_child(o, name, bytes_of(key, key_size));
	else
		jsonmake_null(o, name);
}

static bool is_prose(const char *text)
{
	size_t left = strlen(text);

	while (left) {
		size_t n = printable_sequence((const unsigned char *)text, left);

		if (!n && (unsigned char)*text >= 0x80)
			return false;
		n = n ? n : 1;
		text += n;
		left -= n;
	}
	return true;
}

void jsonmake_prose(struct json_object *o, const char *name, const char *text)
{
	if (text && is_prose(text))
		jsonmake_child(o, name, checked(json_object_new_string(text)));
	else
		jsonmake_key(o, name, text, text ? strlen(text) : 0);
}

static struct json_object *seconds(int64_t ns)
{
	int64_t ms = ns / 1000000;
	char text[32];

	snprintf(text, sizeof(text), "%s%" PRId64 ".%03d", ms < 0 ? "-" : "",
		 ms < 0 ? -(ms / 1000) : ms / 1000, abs((int)(ms % 1000)));
	return checked(json_object_new_double_s((double)ms / 1000.0, text));
}

void jsonmake_seconds(struct json_object *o, const char *name, int64_t ns)
{
	jsonmake_child(o, name, seconds(ns));
}

void jsonmake_append_seconds(struct json_object *list, int64_t ns)
{
	jsonmake_append(list, seconds(ns));
}
