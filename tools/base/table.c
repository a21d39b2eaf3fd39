/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c: a thin cover of libsmartcols, which measures wide characters and cuts the columns that
 * may be cut to the terminal's width; to a pipe it writes everything. Its own escaping is off,
 * because it would escape the backslashes of escaped keys once more: cells are escaped here. A
 * table of a million lines is printed in parts of PART lines, each aligned for itself.
 */
#include "table.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <libsmartcols/libsmartcols.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "admin.h"
#include "jsonin.h"

#define PART 1000
#define FORM 0xffu /* of a column: its enum figure_form */

void table_init(struct table *t, const struct admin *a, const struct table_column *columns,
		size_t n_columns)
{
	*t = (struct table){.scols = scols_new_table(),
			    .columns = columns,
			    .n_columns = n_columns,
			    .exact = a->bytes};
	if (!t->scols)
		message_no_memory();
	scols_table_enable_noencoding(t->scols, 1);
	scols_table_enable_colors(t->scols, a->color);
	for (size_t i = 0; i < n_columns; i++) {
		unsigned how = columns[i].how;
		int flags = how & TABLE_RIGHT || (how & FORM) >= FIGURE_COUNT ? SCOLS_FL_RIGHT : 0;
		if (how & TABLE_TRUNC)
			flags |= SCOLS_FL_TRUNC;
		if (how & TABLE_WRAP)
			flags |= SCOLS_FL_WRAP;
		if (how & TABLE_WIDE && a->narrow)
			flags |= SCOLS_FL_HIDDEN;
		/* a width hint of 1: as wide as what is in it */
		if (!scols_table_new_column(t->scols, columns[i].name, 1, flags))
			message_no_memory();
	}
}

void table_heading(const char *text, bool first)
{
	if (!first)
		putchar('\n');
	figure_print_escaped(text);
	putchar('\n');
}

void table_no_headings(struct table *t)
{
	scols_table_enable_noheadings(t->scols, 1);
}

void table_hide(struct table *t, const char *name)
{
	for (size_t i = 0; i < t->n_columns; i++)
		if (strcmp(t->columns[i].name, name) == 0) {
			struct libscols_column *c = scols_table_get_column(t->scols, i);

			scols_column_set_flags(c, scols_column_get_flags(c) | SCOLS_FL_HIDDEN);
		}
}

static void print_part(struct table *t)
{
	if (t->n_lines) {
		progress_clear();
		scols_print_table(t->scols);
	}
	scols_table_remove_lines(t->scols);
	scols_table_enable_noheadings(t->scols, 1);
	t->n_lines = 0;
	t->line = NULL;
}

void table_row(struct table *t)
{
	if (t->n_lines == PART && !t->hold)
		print_part(t);
	t->line = scols_table_new_line(t->scols, NULL);
	if (!t->line)
		message_no_memory();
	t->n_lines++;
}

static void set_text(struct table *t, size_t column, char *text)
{
	if (scols_line_refer_data(t->line, column, text) != 0) /* the line owns the text now */
		message_no_memory();
}

void table_text(struct table *t, size_t column, const char *text)
{
	set_text(t, column, figure_escaped(text, strlen(text)));
}

void table_printf(struct table *t, size_t column, const char *format, ...)
{
	char *text;
	va_list args;

	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		message_no_memory();
	va_end(args);
	set_text(t, column, text);
}

/* Sets the number that a cell sorts by, as its text may say MiB. */
static void set_number(struct table *t, size_t column, uint64_t n)
{
	scols_cell_set_userdata(scols_line_get_cell(t->line, column), (void *)(uintptr_t)n);
}

void table_size(struct table *t, size_t column, uint64_t bytes)
{
	table_text(t, column, human_bytes(bytes, t->exact));
	set_number(t, column, bytes);
}

void table_count(struct table *t, size_t column, uint64_t n)
{
	table_printf(t, column, "%" PRIu64, n);
	set_number(t, column, n);
}

void table_color(struct table *t, size_t column, const char *color)
{
	scols_cell_set_color(scols_line_get_cell(t->line, column), color);
}

static int larger_first(struct libscols_cell *a, struct libscols_cell *b, void *arg)
{
	uintptr_t m = (uintptr_t)scols_cell_get_userdata(a),
		  n = (uintptr_t)scols_cell_get_userdata(b);

	(void)arg;
	return m > n ? -1 : m < n;
}

void table_sort(struct table *t, size_t column)
{
	struct libscols_column *c = scols_table_get_column(t->scols, column);

	scols_column_set_cmpfunc(c, scols_column_is_right(c) ? larger_first : scols_cmpstr_cells,
				 NULL);
	scols_sort_table(t->scols, c);
}

void table_figure(struct table *t, size_t column, struct json_object *value, enum figure_form form)
{
	uint64_t n;

	set_text(t, column, figure_text(value, form, t->exact, &n));
	set_number(t, column, n);
}

/* States of stores, gates, stages and contexts; other ones have no colour. */
static void color_state(struct table *t, size_t column)
{
	static const struct {
		const char *color, *states;
	} colors[] = {{"green", " alive registered open base running RUNNING "},
		      {"yellow", " waiting degraded closed BLOCKED waits: "},
		      {"cyan", " kept tier ALLOC ALLOC_FREE "},
		      {"red", " dead BUFN BUFN_WAIT BUFN_THROW SPLIT_THROW "}};
	const char *text = scols_cell_get_data(scols_line_get_cell(t->line, column));
	char word[32];

	snprintf(word, sizeof(word), " %.*s ", (int)strcspn(text, " ") % 28, text);
	for (size_t i = 0; i < sizeof(colors) / sizeof(colors[0]); i++)
		if (strstr(colors[i].states, word))
			table_color(t, column, colors[i].color);
}

void table_state(struct table *t, size_t column, const char *state)
{
	table_text(t, column, state);
	color_state(t, column);
}

void table_store_state(struct table *t, size_t column, const struct json_object *o)
{
	const char *alive = jsonin_flag(o, "registered") ? "registered" : "alive";

	table_state(t, column,
		    jsonin_flag(o, "alive")   ? alive
		    : !jsonin_has(o, "alive") ? "unknown"
		    : jsonin_flag(o, "keep")  ? "kept"
					      : "dead");
}

/* Adds up the members whose names stand in text, with + between them. False: one is missing. */
static bool add_up(const struct json_object *o, const char *text, uint64_t *ret)
{
	*ret = 0;
	for (bool more = true; more; text++) {
		char name[64];
		size_t n = strcspn(text, "+/");

		snprintf(name, sizeof(name), "%.*s", (int)n, text);
		if (!jsonin_has(o, name))
			return false;
		*ret += jsonin_u64(o, name);
		text += n;
		more = *text == '+';
	}
	return true;
}

/* How full it is, coloured where that is near to full; of a size of 0: no limit. */
static void show_fill(struct table *t, size_t column, const struct json_object *o,
		      const char *member)
{
	uint64_t used, size;

	if (!add_up(o, member, &used) || !add_up(o, strchr(member, '/') + 1, &size) || !size) {
		table_text(t, column, "-");
		return;
	}
	unsigned percent = (unsigned)((__uint128_t)used * 100 / size);
	table_printf(t, column, "%u %%", percent);
	if (percent >= 80)
		table_color(t, column, percent >= 95 ? "red" : "yellow");
}

static void show_member(struct table *t, size_t column, const struct json_object *o)
{
	const struct table_column *c = &t->columns[column];
	struct json_object *value = jsonin_at_path(o, c->member);
	bool is_0 = json_object_is_type(value, json_type_int) && json_object_get_uint64(value) == 0;

	if ((!value && c->none) || (is_0 && c->how & TABLE_UNLESS_0)) {
		table_text(t, column, c->none ? c->none : "");
		return;
	}
	table_figure(t, column, value, (enum figure_form)(c->how & FORM));
	if (c->how & (TABLE_WARN | TABLE_BAD) && json_object_get_boolean(value))
		table_color(t, column, c->how & TABLE_BAD ? "red" : "yellow");
}

static void show(struct table *t, size_t column, const struct json_object *o)
{
	const struct table_column *c = &t->columns[column];
	uint64_t n;

	if (c->show) {
		c->show(t, column, o);
	} else if ((c->how & TABLE_FILL) == TABLE_FILL) {
		show_fill(t, column, o, c->member);
	} else if (c->member && strpbrk(c->member, "{[")) {
		set_text(t, column, figure_new(o, t->exact, c->member, &n));
		set_number(t, column, n);
	} else if (c->member) {
		show_member(t, column, o);
	}
	if (c->how & TABLE_STATE)
		color_state(t, column);
}

void table_object(struct table *t, const struct json_object *o)
{
	table_row(t);
	for (size_t i = 0; i < t->n_columns; i++)
		show(t, i, o);
}

size_t table_list(const struct admin *a, const struct table_column *columns, size_t n_columns,
		  const struct json_object *o, const char *list)
{
	size_t n = jsonin_count(o, list);
	struct table t;

	table_init(&t, a, columns, n_columns);
	for (size_t i = 0; i < n; i++)
		table_object(&t, jsonin_at(o, list, i));
	table_finish(&t);
	return n;
}

void table_one(const struct admin *a, const struct table_column *columns, size_t n_columns,
	       const struct json_object *o)
{
	struct table t;

	table_init(&t, a, columns, n_columns);
	table_object(&t, o);
	table_finish(&t);
}

void table_row_bold(struct table *t)
{
	for (size_t i = 0; i < t->n_columns; i++)
		table_color(t, i, "bold");
}

void table_finish(struct table *t)
{
	print_part(t);
	scols_unref_table(t->scols);
	*t = (struct table){.scols = NULL};
}
