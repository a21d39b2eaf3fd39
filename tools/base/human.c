/* SPDX-License-Identifier: Apache-2.0 */
/* human.c: sizes for people, in powers of 1024. Integers only: what is printed is never
 * more than there is. The upper half of an id is the client, the lower its own number. */

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "admin.h"
#include "alloc.h"
#include "cleanup.h"
#include "jsonin.h"
#include "jsonmake.h"

static const char units[] = "KMGTPE";

/* As snprintf(), cut after 31 bytes. */
static __attribute__((format(printf, 1, 2))) const char *human_text(const char *format, ...)
{
	static _Thread_local char texts[8][32];
	static _Thread_local unsigned next;
	char *text = texts[next++ % 8];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(texts[0]), format, args);
	va_end(args);
	return text;
}

const char *human_size(uint64_t bytes)
{
	unsigned unit = 0;
	uint64_t whole = bytes, rest = 0;

	while (whole >= 1024 && unit < 6) {
		rest = whole % 1024;
		whole /= 1024;
		unit++;
	}
	if (unit == 0)
		return human_text(bytes ? "%" PRIu64 " B" : "0", bytes);
	if (whole >= 100 || (rest == 0 && unit == 1))
		return human_text("%" PRIu64 " %ciB", whole, units[unit - 1]);
	if (whole >= 10)
		return human_text("%" PRIu64 ".%" PRIu64 " %ciB", whole, rest * 10 / 1024,
				  units[unit - 1]);
	return human_text("%" PRIu64 ".%02" PRIu64 " %ciB", whole, rest * 100 / 1024,
			  units[unit - 1]);
}

const char *human_bytes(uint64_t bytes, bool exact)
{
	return exact ? human_text("%" PRIu64, bytes) : human_size(bytes);
}

const char *human_count(uint64_t n, const char *noun)
{
	return human_text("%" PRIu64 " %s%s", n, noun, n == 1 ? "" : "s");
}

const char *human_duration(double seconds)
{
	uint64_t s = seconds > 0 && seconds < 1e15 ? (uint64_t)seconds : 0;

	if (s < 60)
		return human_text("%" PRIu64 " s", s);
	if (s < 3600)
		return human_text("%" PRIu64 " min", s / 60);
	if (s < 86400)
		return human_text("%" PRIu64 " h %" PRIu64 " min", s / 3600, s % 3600 / 60);
	return human_text("%" PRIu64 " d %" PRIu64 " h", s / 86400, s % 86400 / 3600);
}

const char *human_id(uint64_t id)
{
	return id >> 32 ? human_text("%" PRIu64 ":%" PRIu64, id >> 32, id & UINT32_MAX)
			: human_text("%" PRIu64, id);
}

bool human_number(const char *text, uint64_t most, uint64_t *ret)
{
	char *end;

	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)*text) || errno || *end || value > most)
		return false;
	*ret = value;
	return true;
}

bool human_parse_id(const char *text, uint64_t *ret_id)
{
	const char *colon = strchr(text, ':');
	char before[24];
	uint64_t client = 0, own;

	snprintf(before, sizeof(before), "%.*s", colon ? (int)(colon - text) : 0, text);
	if (colon && !human_number(before, UINT32_MAX, &client))
		return false;
	if (!human_number(colon ? colon + 1 : text, colon ? UINT32_MAX : UINT64_MAX, &own) || !own)
		return false;
	*ret_id = client << 32 | own;
	return true;
}

/* The unit behind the digits as a power of two; -1: none. */
static int unit_shift(const char *text)
{
	if (!*text || strcasecmp(text, "b") == 0)
		return 0;
	const char *found = strchr(units, toupper((unsigned char)*text));
	if (!found || !*found)
		return -1;
	text++;
	if (*text == 'i' || *text == 'I')
		text++;
	if (*text == 'b' || *text == 'B')
		text++;
	return *text ? -1 : 10 * (int)(found - units + 1);
}

bool human_parse(const char *text, uint64_t whole, uint64_t *ret_bytes)
{
	const uint64_t limit = (uint64_t)1 << 63;
	uint64_t integer = 0, fraction = 0, scale = 1;

	if (!isdigit((unsigned char)*text))
		return false;
	for (; isdigit((unsigned char)*text); text++) {
		if (integer > limit / 10)
			return false;
		integer = integer * 10 + (uint64_t)(*text - '0');
	}
	if (*text == '.') {
		for (text++; isdigit((unsigned char)*text); text++) {
			if (scale < 1000000) { /* what is finer is cut off */
				fraction = fraction * 10 + (uint64_t)(*text - '0');
				scale *= 10;
			}
		}
	}
	while (*text == ' ')
		text++;
	__uint128_t value = (__uint128_t)integer * scale + fraction;
	if (strcmp(text, "%") == 0) {
		value = value * whole / scale / 100;
	} else {
		int shift = unit_shift(text);
		if (shift < 0)
			return false;
		value = (value << shift) / scale;
	}
	if (value > limit)
		return false;
	*ret_bytes = (uint64_t)value;
	return true;
}

/* ---- members of a document ------------------------------------------------------------------- */

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
	} spans[] = {
		{120, 1, "s"}, {7200, 60, "min"}, {172800, 3600, "h"}, {UINT32_MAX, 86400, "d"}};
	size_t i = 0;

	while (i < 3 && s >= spans[i].below)
		i++;
	return human_text("%" PRIu64 " %s", s / spans[i].of, spans[i].unit);
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
