/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c: a thin cover of libsmartcols, which measures wide characters and cuts the columns that may be cut to the
 * terminal's width; to a pipe it writes everything. Its own escaping is off, because it would escape the backslashes of
 * escaped keys once more: cells are escaped here. A table of a million lines is printed
 * in parts of PART lines, each aligned for itself.
 */
#include "table.h"

#include <inttypes.h>
#include <libsmartcols/libsmartcols.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "human.h"
#include "jsonout.h"
#include "keytext.h"
#include "message.h"
#include "progress.h"

#define PART 1000

void table_init(struct table *t, const struct admin *a, const struct table_column *columns, size_t n_columns)
{
	*t = (struct table){.scols = scols_new_table(), .exact = a->bytes};
	if (!t->scols)
		message_no_memory();
	scols_table_enable_noencoding(t->scols, 1);
	scols_table_enable_colors(t->scols, a->color);
	for (size_t i = 0; i < n_columns; i++) {
		int flags = 0;
		if (columns[i].flags & TABLE_RIGHT)
			flags |= SCOLS_FL_RIGHT;
		if (columns[i].flags & TABLE_TRUNC)
			flags |= SCOLS_FL_TRUNC;
		if (columns[i].flags & TABLE_WRAP)
			flags |= SCOLS_FL_WRAP;
		if (columns[i].flags & TABLE_HIDDEN)
			flags |= SCOLS_FL_HIDDEN;
		/* a width hint of 1: as wide as what is in it */
		if (!scols_table_new_column(t->scols, columns[i].name, 1, flags))
			message_no_memory();
	}
}

struct json_object *table_or_list(struct table *t, const struct admin *a, const struct table_column *columns,
				  size_t n_columns)
{
	if (a->json)
		return jsonmake_new_list();
	table_init(t, a, columns, n_columns);
	return NULL;
}

void table_heading(const char *text, bool first)
{
	if (!first)
		putchar('\n');
	keytext_print(text);
	putchar('\n');
}

void table_no_headings(struct table *t)
{
	scols_table_enable_noheadings(t->scols, 1);
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

void table_key(struct table *t, size_t column, const void *key, size_t key_size)
{
	char *text = keytext_new(key, key_size);

	if (scols_line_refer_data(t->line, column, text) != 0) /* the line owns the text now */
		message_no_memory();
}

void table_text(struct table *t, size_t column, const char *text)
{
	table_key(t, column, text, strlen(text));
}

void table_printf(struct table *t, size_t column, const char *format, ...)
{
	char *text;
	va_list args;

	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		message_no_memory();
	va_end(args);
	if (scols_line_refer_data(t->line, column, text) != 0)
		message_no_memory();
}

/* Sets the number that a cell sorts by, as its text may say MiB. */
static void set_number(struct table *t, size_t column, uint64_t n)
{
	scols_cell_set_userdata(scols_line_get_cell(t->line, column), (void *)(uintptr_t)n);
}

void table_size(struct table *t, size_t column, uint64_t bytes)
{
	char text[HUMAN_SIZE];

	table_text(t, column, human_bytes(bytes, t->exact, text));
	set_number(t, column, bytes);
}

void table_fill(struct table *t, size_t column, uint64_t used, uint64_t size)
{
	if (!size) {
		table_text(t, column, "-");
		return;
	}
	unsigned percent = (unsigned)((__uint128_t)used * 100 / size);
	table_printf(t, column, "%u %%", percent);
	if (percent >= 80)
		table_color(t, column, percent >= 95 ? "red" : "yellow");
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

void table_sort(struct table *t, size_t column)
{
	struct libscols_column *c = scols_table_get_column(t->scols, column);

	scols_column_set_cmpfunc(c, scols_cmpstr_cells, NULL);
	scols_sort_table(t->scols, c);
}

static int larger_first(struct libscols_cell *a, struct libscols_cell *b, void *arg)
{
	uintptr_t m = (uintptr_t)scols_cell_get_userdata(a), n = (uintptr_t)scols_cell_get_userdata(b);

	(void)arg;
	return m > n ? -1 : m < n;
}

void table_hold(struct table *t)
{
	t->hold = true;
}

void table_sort_down(struct table *t, size_t column)
{
	struct libscols_column *c = scols_table_get_column(t->scols, column);

	scols_column_set_cmpfunc(c, larger_first, NULL);
	scols_sort_table(t->scols, c);
}

void table_age(struct table *t, size_t column, int64_t since_ns)
{
	struct timespec now;
	int64_t s;

	clock_gettime(CLOCK_REALTIME, &now);
	s = now.tv_sec - since_ns / 1000000000;
	if (s < 0)
		s = 0;
	if (s < 120)
		table_printf(t, column, "%" PRId64 " s", s);
	else if (s < 7200)
		table_printf(t, column, "%" PRId64 " min", s / 60);
	else if (s < 172800)
		table_printf(t, column, "%" PRId64 " h", s / 3600);
	else
		table_printf(t, column, "%" PRId64 " d", s / 86400);
	set_number(t, column, (uint64_t)s);
}

void table_finish(struct table *t)
{
	print_part(t);
	scols_unref_table(t->scols);
	*t = (struct table){.scols = NULL};
}
