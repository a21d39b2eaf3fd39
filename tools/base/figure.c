/* SPDX-License-Identifier: Apache-2.0 */
/* figure.c: see figure.h. */
#include "figure.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arb.h"
#include "human.h"
#include "jsonin.h"
#include "keytext.h"
#include "message.h"

static uint64_t seconds_ago(double since)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	int64_t s = now.tv_sec - (int64_t)since;
	return s < 0 ? 0 : (uint64_t)s;
}

static void print_ago(uint64_t s, char text[HUMAN_SIZE])
{
	static const struct {
		unsigned below, of;
		const char *unit;
	} units[] = {
		{120, 1, "s"}, {7200, 60, "min"}, {172800, 3600, "h"}, {UINT32_MAX, 86400, "d"}};
	size_t i = 0;

	while (i < 3 && s >= units[i].below)
		i++;
	snprintf(text, HUMAN_SIZE, "%" PRIu64 " %s", s / units[i].of, units[i].unit);
}

static void print_number(const struct json_object *value, enum figure_form form, bool exact,
			 uint64_t n, char text[HUMAN_SIZE])
{
	double real = value ? json_object_get_double(value) : 0;

	switch (form) {
	case FIGURE_SIZE:
	case FIGURE_SIZES:
		human_bytes(form == FIGURE_SIZES ? (uint64_t)real : n, exact, text);
		return;
	case FIGURE_RATE:
		snprintf(text, HUMAN_SIZE, "%.0f", real);
		return;
	case FIGURE_TIME:
		human_duration(real, text);
		return;
	case FIGURE_LATELY:
	case FIGURE_MS:
	case FIGURE_TENTHS:
		if (form == FIGURE_LATELY && n >= 10000)
			human_duration(real / 1e3, text);
		else
			snprintf(text, HUMAN_SIZE, "%.1f s",
				 form == FIGURE_TENTHS ? real : real / 1e3);
		return;
	case FIGURE_AGO:
		print_ago(n, text);
		return;
	case FIGURE_ID:
		arb_id_text(n, text);
		return;
	case FIGURE_TEXT:
	case FIGURE_RAW:
	case FIGURE_FLAG:
	case FIGURE_COUNT:
	case FIGURE_FORMS:
	default:
		snprintf(text, HUMAN_SIZE, "%" PRIu64, n);
	}
}

char *figure_text(struct json_object *value, enum figure_form form, bool exact,
		  uint64_t *ret_number)
{
	const char *string =
		json_object_is_type(value, json_type_string) ? json_object_get_string(value) : "";
	char text[HUMAN_SIZE], *made;

	*ret_number = 0;
	if (form == FIGURE_FLAG) {
		string = value && json_object_get_boolean(value) ? "yes" : "no";
	} else if (form >= FIGURE_COUNT || json_object_is_type(value, json_type_int)) {
		*ret_number = form == FIGURE_AGO
				      ? seconds_ago(value ? json_object_get_double(value) : 0)
			      : value ? json_object_get_uint64(value)
				      : 0;
		if (form <= FIGURE_SIZE && value && json_object_get_int64(value) < 0)
			snprintf(text, sizeof(text), "%" PRId64, json_object_get_int64(value));
		else
			print_number(value, form, exact, *ret_number, text);
		string = text;
	}
	made = form == FIGURE_TEXT ? keytext_new(string, strlen(string)) : strdup(string);
	if (!made)
		message_no_memory();
	return made;
}

/* Prints the member between two braces: its path, and behind a colon its form. */
static void print_member(const struct json_object *o, bool exact, const char *member)
{
	static const char *const forms[FIGURE_FORMS] = {
		[FIGURE_SIZE] = "size", [FIGURE_TIME] = "time",   [FIGURE_ID] = "id",
		[FIGURE_RATE] = "rate", [FIGURE_SIZES] = "sizes", [FIGURE_TENTHS] = "tenths"};
	char path[64], noun[HUMAN_SIZE];
	const char *colon = strchr(member, ':');
	int form = FIGURE_TEXT;
	uint64_t n;

	snprintf(path, sizeof(path), "%.*s", (int)(colon ? colon - member : (long)strlen(member)),
		 member);
	for (int f = 0; colon && f < FIGURE_FORMS; f++)
		form = forms[f] && strcmp(colon + 1, forms[f]) == 0 ? f : form;
	char *text = figure_text(jsonin_at_path(o, path), (enum figure_form)form, exact, &n);
	fputs(colon && form == FIGURE_TEXT ? human_count(n, colon + 1, noun) : text, stdout);
	free(text);
}

void figure_print(const struct json_object *o, bool exact, const char *text)
{
	char member[64];

	for (; *text; text++) {
		if (*text != '{') {
			putchar(*text);
			continue;
		}
		snprintf(member, sizeof(member), "%.*s", (int)strcspn(text + 1, "}"), text + 1);
		print_member(o, exact, member);
		text += strlen(member) + 1;
	}
}
