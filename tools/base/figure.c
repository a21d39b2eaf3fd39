/* SPDX-License-Identifier: Apache-2.0 */
/* figure.c: see figure.h. */
#include "figure.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "alloc.h"
#include "cleanup.h"
#include "human.h"
#include "jsonin.h"
#include "message.h"
#include "printable.h"

char *figure_escaped(const void *bytes, size_t size)
{
	char *text = printable_new(bytes, size);

	if (!text)
		message_no_memory();
	return text;
}

void figure_print_escaped(const char *text)
{
	_free_ char *escaped = figure_escaped(text, strlen(text));

	fputs(escaped, stdout);
}

static uint64_t seconds_ago(double since)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	int64_t s = now.tv_sec - (int64_t)since;
	return s < 0 ? 0 : (uint64_t)s;
}

static const char *ago(uint64_t s)
{
	static const struct {
		unsigned below, of;
		const char *unit;
	} units[] = {
		{120, 1, "s"}, {7200, 60, "min"}, {172800, 3600, "h"}, {UINT32_MAX, 86400, "d"}};
	size_t i = 0;

	while (i < 3 && s >= units[i].below)
		i++;
	return human_text("%" PRIu64 " %s", s / units[i].of, units[i].unit);
}

static const char *number_text(const struct json_object *value, enum figure_form form, bool exact,
			       uint64_t n)
{
	double real = value ? json_object_get_double(value) : 0;

	switch (form) {
	case FIGURE_SIZE:
		return human_bytes(n, exact);
	case FIGURE_SIZES:
		return human_bytes((uint64_t)real, exact);
	case FIGURE_RATE:
		return human_text("%.0f", real);
	case FIGURE_TIME:
		return human_duration(real);
	case FIGURE_LONG:
		return human_duration(real / 1e3);
	case FIGURE_TENTHS:
		return human_text("%.1f s", real);
	case FIGURE_LATELY:
	case FIGURE_MS:
		return form == FIGURE_LATELY && n >= 10000 ? human_duration(real / 1e3)
							   : human_text("%.1f s", real / 1e3);
	case FIGURE_AGO:
		return ago(n);
	case FIGURE_ID:
		return human_id(n);
	case FIGURE_TEXT:
	case FIGURE_RAW:
	case FIGURE_FLAG:
	case FIGURE_COUNT:
	case FIGURE_FORMS:
	default:
		return human_text("%" PRIu64, n);
	}
}

char *figure_text(struct json_object *value, enum figure_form form, bool exact,
		  uint64_t *ret_number)
{
	const char *string =
		json_object_is_type(value, json_type_string) ? json_object_get_string(value) : "";
	char *made;

	*ret_number = 0;
	if (form == FIGURE_FLAG) {
		string = value && json_object_get_boolean(value) ? "yes" : "no";
	} else if (form >= FIGURE_COUNT || json_object_is_type(value, json_type_int)) {
		*ret_number = form == FIGURE_AGO
				      ? seconds_ago(value ? json_object_get_double(value) : 0)
			      : value ? json_object_get_uint64(value)
				      : 0;
		string = form <= FIGURE_SIZE && value && json_object_get_int64(value) < 0
				 ? human_text("%" PRId64, json_object_get_int64(value))
				 : number_text(value, form, exact, *ret_number);
	} else if (json_object_is_type(value, json_type_double)) {
		string = human_text("%g", json_object_get_double(value));
	}
	made = form == FIGURE_TEXT ? figure_escaped(string, strlen(string)) : strdup(string);
	if (!made)
		message_no_memory();
	return made;
}

/* A text that is being written. */
struct writing {
	const struct json_object *o;
	bool exact;
	uint64_t number; /* of the last member in it */
	char *text;
	size_t size, room;
};

static void add(struct writing *w, const char *text, size_t size)
{
	if (SHMS_GROW(w->text, w->room, w->size, size + 1) < 0)
		message_no_memory();
	memcpy(w->text + w->size, text, size);
	w->size += size;
	w->text[w->size] = '\0';
}

/* Writes the member between two braces: its path, and behind a colon its form. */
static void write_member(struct writing *w, const char *member)
{
	static const char *const forms[FIGURE_FORMS] = {
		[FIGURE_SIZE] = "size", [FIGURE_TIME] = "time",   [FIGURE_ID] = "id",
		[FIGURE_RATE] = "rate", [FIGURE_SIZES] = "sizes", [FIGURE_TENTHS] = "tenths",
		[FIGURE_RAW] = "raw"};
	char path[64];
	const char *colon = strchr(member, ':');
	int form = FIGURE_TEXT;

	snprintf(path, sizeof(path), "%.*s", (int)strcspn(member, ":"), member);
	for (int f = 0; colon && f < FIGURE_FORMS; f++)
		form = forms[f] && strcmp(colon + 1, forms[f]) == 0 ? f : form;
	_free_ char *text = figure_text(jsonin_at_path(w->o, path), (enum figure_form)form,
					w->exact, &w->number);
	const char *shown = colon && form == FIGURE_TEXT ? human_count(w->number, colon + 1) : text;
	add(w, shown, strlen(shown));
}

/* Is what stands between a bracket and a question mark so? */
static bool is_so(const struct json_object *o, const char *condition)
{
	const bool any = strncmp(condition, "has ", 4) == 0;
	const char *word = strchr(condition, '=');
	char path[64];

	snprintf(path, sizeof(path), "%.*s", (int)strcspn(condition, "="), condition);
	struct json_object *value = jsonin_at_path(o, any ? path + 4 : path);
	if (!value || any || json_object_is_type(value, json_type_object))
		return value;
	return word ? strcmp(json_object_get_string(value), word + 1) == 0
		    : json_object_get_boolean(value);
}

/* The first of these characters that stands in no brackets within text; else its end. */
static const char *end_of(const char *text, const char *characters)
{
	for (int depth = 0; *text && (depth || !strchr(characters, *text)); text++)
		depth += (*text == '[') - (*text == ']');
	return text;
}

static void write_text(struct writing *w, const char *text, const char *end)
{
	char part[64];

	for (; text < end; text++) {
		if (*text == '{') {
			snprintf(part, sizeof(part), "%.*s", (int)strcspn(text + 1, "}"), text + 1);
			write_member(w, part);
			text += strlen(part) + 1;
		} else if (*text == '[') {
			snprintf(part, sizeof(part), "%.*s", (int)strcspn(text + 1, "?"), text + 1);
			const char *yes = text + strlen(part) + 2, *no = end_of(yes, "|]");
			text = end_of(no + (*no == '|'), "]");
			if (is_so(w->o, part))
				write_text(w, yes, no);
			else if (*no == '|')
				write_text(w, no + 1, text);
		} else {
			size_t n = strcspn(text, "{["), left = (size_t)(end - text);
			add(w, text, n < left ? n : left);
			text += (n < left ? n : left) - 1;
		}
	}
}

char *figure_new(const struct json_object *o, bool exact, const char *text, uint64_t *ret_number)
{
	struct writing w = {.o = o, .exact = exact};

	add(&w, "", 0);
	write_text(&w, text, text + strlen(text));
	*ret_number = w.number;
	return w.text;
}

void figure_print(const struct json_object *o, bool exact, const char *text)
{
	uint64_t number;
	_free_ char *made = figure_new(o, exact, text, &number);

	fputs(made, stdout);
}
