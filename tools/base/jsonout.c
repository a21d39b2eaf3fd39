/* SPDX-License-Identifier: Apache-2.0 */
/* jsonout.c: see jsonout.h. Lists are printed while they are found, so that a million objects need
 * no memory. */
#include "jsonout.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "figure.h"
#include "message.h"

#define PLAIN  (JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE)
#define PRETTY (JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE)

static const char *text_of(struct json_object *o, int flags)
{
	const char *text = (o = jsonmake_end(o)) ? json_object_to_json_string_ext(o, flags) : NULL;

	if (!text)
		message_no_memory();
	return text;
}

static void print(struct json_object *o, int flags)
{
	const char *text = text_of(o, flags);

	puts(text);
	json_object_put(o);
}

void json_print(struct json_object *o)
{
	print(o, isatty(STDOUT_FILENO) ? PRETTY : PLAIN);
}

void json_show(const struct admin *a, struct json_object *o,
	       void (*text)(const struct admin *a, const struct json_object *o))
{
	if (a->json) {
		json_print(o);
		return;
	}
	text(a, o);
	json_object_put(o);
}

void json_say(const struct admin *a, struct json_object *o, const char *text)
{
	if (a->json) {
		json_print(o);
		return;
	}
	figure_print(o, a->bytes, text);
	json_object_put(o);
}

void json_print_line(struct json_object *o)
{
	print(o, PLAIN);
}

void json_stream_begin(const char *name)
{
	printf("{\"%s\":[", name);
}

void json_stream_item(struct json_object *item, bool first)
{
	const char *text = text_of(item, PLAIN);

	fputs(first ? "\n" : ",\n", stdout);
	fputs(text, stdout);
	json_object_put(item);
}

void json_stream_end(void)
{
	puts("]}");
}

void json_raw_begin(struct json_object *o, const char *name)
{
	const char *text = text_of(o, PLAIN);

	printf("%.*s,\"%s\":\"", (int)(strlen(text) - 1), text, name);
	json_object_put(o);
}

void json_raw_end(void)
{
	puts("\"}");
}
