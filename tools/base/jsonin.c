/* SPDX-License-Identifier: Apache-2.0 */
/* jsonin.c: a thin cover of json-c's reading side. Its functions convert between types; these do
 * not: a text is no number. */
#include "jsonin.h"

#include <json-c/json.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin.h"
#include "jsonmake.h"

struct json_object *jsonin_parse(const char *text, size_t n)
{
	struct json_tokener *t = n <= INT_MAX ? json_tokener_new() : NULL;
	struct json_object *o = NULL;

	if (!t)
		return NULL;
	o = json_tokener_parse_ex(t, text, (int)n);
	if (json_tokener_get_error(t) != json_tokener_success ||
	    json_tokener_get_parse_end(t) != n || !json_object_is_type(o, json_type_object)) {
		json_object_put(o);
		o = NULL;
	}
	json_tokener_free(t);
	return o;
}

void jsonin_free(struct json_object *o)
{
	json_object_put(o);
}

static struct json_object *member(const struct json_object *o, const char *name,
				  enum json_type type)
{
	struct json_object *found;

	if (!json_object_is_type(o, json_type_object) ||
	    !json_object_object_get_ex(o, name, &found) || !json_object_is_type(found, type))
		return NULL;
	return found;
}

struct json_object *jsonin_object(const struct json_object *o, const char *name)
{
	return member(o, name, json_type_object);
}

size_t jsonin_count(const struct json_object *o, const char *name)
{
	const struct json_object *list = member(o, name, json_type_array);

	return list ? json_object_array_length(list) : 0;
}

struct json_object *jsonin_at(const struct json_object *o, const char *name, size_t i)
{
	const struct json_object *list = member(o, name, json_type_array);

	return list ? json_object_array_get_idx(list, i) : NULL;
}

struct json_object *jsonin_at_path(const struct json_object *o, const char *path)
{
	struct json_object *found = NULL;
	char name[64];

	for (const struct json_object *at = o; !found; path++) {
		size_t n = strcspn(path, ".|");

		snprintf(name, sizeof(name), "%.*s", (int)n, path);
		path += n;
		if (!json_object_is_type(at, json_type_object) ||
		    !json_object_object_get_ex(at, name, &found))
			found = NULL;
		if (*path == '|' && json_object_is_type(found, json_type_string) &&
		    !json_object_get_string_len(found))
			found = NULL;
		at = *path == '.' ? found : o;
		if (*path == '.')
			found = NULL;
		if (!*path)
			break;
	}
	return found;
}

static int compare(const void *x, const void *y, void *arg)
{
	int r = 0;

	for (const char *const *member = arg; *member && !r; member++) {
		const bool down = **member == '-';
		struct json_object *a = jsonin_at_path(*(struct json_object *const *)x,
						       *member + down),
				   *b = jsonin_at_path(*(struct json_object *const *)y,
						       *member + down);
		int64_t one = json_object_get_int64(a), two = json_object_get_int64(b);

		if (json_object_is_type(a, json_type_string) &&
		    json_object_is_type(b, json_type_string))
			r = strcmp(json_object_get_string(a), json_object_get_string(b));
		else
			r = (one > two) - (one < two);
		r = down ? -r : r;
	}
	return r;
}

const struct json_object **jsonin_sorted(const struct json_object *o, const char *list,
					 const char *const *order, size_t *ret_n)
{
	size_t n = jsonin_count(o, list);
	const struct json_object **items = calloc(n + 1, sizeof(const struct json_object *));

	if (!items)
		message_no_memory();
	for (size_t i = 0; i < n; i++)
		items[i] = jsonin_at(o, list, i);
	qsort_r(items, n, sizeof(const struct json_object *), compare, (void *)(uintptr_t)order);
	*ret_n = n;
	return items;
}

void jsonin_copy(struct json_object *to, const struct json_object *from, const char *const *members)
{
	for (; *members; members++)
		jsonmake_child(to, *members, json_object_get(jsonin_at_path(from, *members)));
}

bool jsonin_has(const struct json_object *o, const char *name)
{
	struct json_object *found;

	return json_object_is_type(o, json_type_object) &&
	       json_object_object_get_ex(o, name, &found) && found;
}

uint64_t jsonin_u64(const struct json_object *o, const char *name)
{
	const struct json_object *found = member(o, name, json_type_int);

	return found ? json_object_get_uint64(found) : 0;
}

int64_t jsonin_i64(const struct json_object *o, const char *name)
{
	const struct json_object *found = member(o, name, json_type_int);

	return found ? json_object_get_int64(found) : 0;
}

double jsonin_real(const struct json_object *o, const char *name)
{
	const struct json_object *found = member(o, name, json_type_double);

	return found ? json_object_get_double(found) : (double)jsonin_i64(o, name);
}

bool jsonin_flag(const struct json_object *o, const char *name)
{
	const struct json_object *found = member(o, name, json_type_boolean);

	return found && json_object_get_boolean(found);
}

const char *jsonin_text(const struct json_object *o, const char *name)
{
	struct json_object *found = member(o, name, json_type_string);

	return found ? json_object_get_string(found) : "";
}

/* ---- printing -------------------------------------------------------------------------------- */

/* Lists are printed while they are found, so that a million objects need no memory. */

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

void json_stream_item(struct json_object *item, bool first)
{
	const char *text = text_of(item, PLAIN);

	fputs(first ? "\n" : ",\n", stdout);
	fputs(text, stdout);
	json_object_put(item);
}

void json_raw_begin(struct json_object *o, const char *name)
{
	const char *text = text_of(o, PLAIN);

	printf("%.*s,\"%s\":\"", (int)(strlen(text) - 1), text, name);
	json_object_put(o);
}
