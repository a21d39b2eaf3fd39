/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jsonout.c: a thin cover of json-c. It adds what json-c does not care for: valid UTF-8 whatever the names of files are, and
 * lists that are printed while they are found, so that a million objects need no memory.
 */
#include "jsonout.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "keytext.h"
#include "message.h"

#define PLAIN  (JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE)
#define PRETTY (JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE)

static struct json_object *checked(struct json_object *o)
{
	if (!o)
		message_no_memory();
	return o;
}

struct json_object *json_new(void)
{
	return checked(json_object_new_object());
}

struct json_object *json_new_list(void)
{
	return checked(json_object_new_array());
}

struct json_object *json_child(struct json_object *o, const char *name, struct json_object *child)
{
	if (json_object_object_add(o, name, child) != 0)
		message_no_memory();
	return child;
}

void json_append(struct json_object *list, struct json_object *item)
{
	if (json_object_array_add(list, item) != 0)
		message_no_memory();
}

void json_u64(struct json_object *o, const char *name, uint64_t value)
{
	json_child(o, name, checked(json_object_new_uint64(value)));
}

void json_i64(struct json_object *o, const char *name, int64_t value)
{
	json_child(o, name, checked(json_object_new_int64(value)));
}

void json_real(struct json_object *o, const char *name, double value)
{
	char text[64];

	snprintf(text, sizeof(text), "%.3f", value);
	json_child(o, name, checked(json_object_new_double_s(value, text)));
}

void json_flag(struct json_object *o, const char *name, bool value)
{
	json_child(o, name, checked(json_object_new_boolean(value)));
}

static bool is_utf8(const char *text)
{
	size_t left = strlen(text);

	while (left) {
		size_t n = keytext_printable((const unsigned char *)text, left);
		if (!n && (unsigned char)*text >= 0x80)
			return false;
		n = n ? n : 1; /* ASCII control characters are json-c's to escape */
		text += n;
		left -= n;
	}
	return true;
}

void json_text(struct json_object *o, const char *name, const char *text)
{
	if (!text)
		json_child(o, name, NULL);
	else if (is_utf8(text))
		json_child(o, name, checked(json_object_new_string(text)));
	else
		json_key(o, name, text, strlen(text));
}

void json_key(struct json_object *o, const char *name, const void *key, size_t key_size)
{
	if (!key) {
		json_child(o, name, NULL);
		return;
	}
	char *text = keytext_new(key, key_size);
	json_child(o, name, checked(json_object_new_string(text)));
	free(text);
}

static void print(struct json_object *o, int flags)
{
	const char *text = json_object_to_json_string_ext(o, flags);

	if (!text)
		message_no_memory();
	puts(text);
	json_object_put(o);
}

void json_print(struct json_object *o)
{
	print(o, isatty(STDOUT_FILENO) ? PRETTY : PLAIN);
}

void json_print_line(struct json_object *o)
{
	print(o, PLAIN);
	fflush(stdout);
}

void json_stream_begin(const char *name)
{
	printf("{\"%s\":[", name);
}

void json_stream_item(struct json_object *item, bool first)
{
	const char *text = json_object_to_json_string_ext(item, PLAIN);

	if (!text)
		message_no_memory();
	fputs(first ? "\n" : ",\n", stdout);
	fputs(text, stdout);
	json_object_put(item);
}

void json_stream_end(struct json_object *more)
{
	putchar(']');
	if (more) {
		const char *text = json_object_to_json_string_ext(more, PLAIN);
		if (!text)
			message_no_memory();
		if (strlen(text) > 2) /* not {} */
			printf(",%.*s", (int)(strlen(text) - 2), text + 1);
		json_object_put(more);
	}
	puts("}");
}

void json_raw_begin(struct json_object *o, const char *name)
{
	const char *text = json_object_to_json_string_ext(o, PLAIN);

	if (!text)
		message_no_memory();
	printf("%.*s,\"%s\":\"", (int)(strlen(text) - 1), text, name);
	json_object_put(o);
}

void json_raw_end(void)
{
	puts("\"}");
}
