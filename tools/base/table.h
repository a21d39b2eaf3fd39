/* SPDX-License-Identifier: Apache-2.0 */
/* table.h: aligned tables for people, by libsmartcols: its width and its colours follow the
 * terminal. */
#ifndef TABLE_H
#define TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "admin.h"
#include "jsonin.h"

/* Besides an enum figure_form; columns of numbers are aligned to the right. */
#define TABLE_RIGHT    (1u << 8)
#define TABLE_TRUNC    (1u << 9)                /* gives way where the terminal is too narrow */
#define TABLE_WRAP     (1u << 10)               /* goes on in a second line there */
#define TABLE_WIDE     (1u << 11)               /* left out of a narrow display */
#define TABLE_UNLESS_0 (1u << 12)               /* 0 is shown as a missing member is */
#define TABLE_WARN     (1u << 13)               /* what is not 0 is yellow */
#define TABLE_BAD      (1u << 16)               /* or red */
#define TABLE_STATE    (1u << 14)               /* coloured by its word */
#define TABLE_FILL     (1u << 15 | TABLE_RIGHT) /* a part of another, in percent */

struct table;
struct table_column {
	const char *name; /* its heading */
	unsigned how;     /* an enum figure_form, and flags */
	/*
	 * The member that it shows of a row's object (jsonin_at_path()), or a text with braces or
	 * brackets (figure_print()); NULL: it is filled by the command, or by show(). Of
	 * TABLE_FILL: "used/size", or sums of these.
	 */
	const char *member;
	const char *none; /* where that is missing; NULL: as 0 or no text is shown */
	void (*show)(struct table *t, size_t column, const struct json_object *o);
};

struct table {
	struct libscols_table *scols;
	struct libscols_line *line; /* being filled */
	const struct table_column *columns;
	size_t n_columns;
	size_t n_lines; /* not yet printed */
	bool exact;     /* sizes in bytes */
	/* set by whoever sorts the table: nothing is printed before the end */
	bool hold;
};

/* Ends the program where memory is out, as the others do. columns stay in use until table_finish().
 */
void table_init(struct table *t, const struct admin *a, const struct table_column *columns,
		size_t n_columns);
/* A row of what the columns show of o. */
void table_object(struct table *t, const struct json_object *o);
/* Prints the list of that name of o as a table, a row for each of its objects. Returns how many
 * there are. */
size_t table_list(const struct admin *a, const struct table_column *columns, size_t n_columns,
		  const struct json_object *o, const char *list);
#define TABLE_LIST(a, columns, o, list) \
	table_list(a, columns, sizeof(columns) / sizeof((columns)[0]), o, list)
/* Prints o as a table of one row. */
void table_one(const struct admin *a, const struct table_column *columns, size_t n_columns,
	       const struct json_object *o);
#define TABLE_ONE(a, columns, o) table_one(a, columns, sizeof(columns) / sizeof((columns)[0]), o)
void table_no_headings(struct table *t);
/* Leaves out the column of that heading. */
void table_hide(struct table *t, const char *name);
/* Prints the heading of the next of several tables. */
void table_heading(const char *text, bool first);
/* Begins a line; the others fill its cells. Every 1000 lines are printed on the way, so that memory
 * is bounded. */
void table_row(struct table *t);
/* Text of any origin, escaped for a terminal as fields.h says. */
void table_text(struct table *t, size_t column, const char *text);
/* Text of our own: printed as it is. */
void table_printf(struct table *t, size_t column, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void table_size(struct table *t, size_t column, uint64_t bytes);
void table_count(struct table *t, size_t column, uint64_t n);
/* A member of a document, in that form. */
void table_figure(struct table *t, size_t column, struct json_object *value, enum figure_form form);
/* A word for a state, in its colour. */
void table_state(struct table *t, size_t column, const char *state);
/* Shows a store's "alive", "keep" and "registered". */
void table_store_state(struct table *t, size_t column, const struct json_object *o);
/* The whole row stands in bold. */
void table_row_bold(struct table *t);
/* The colour of a cell by name ("red", "yellow", "green", "bold"), seen on terminals only. */
void table_color(struct table *t, size_t column, const char *color);
/* Sorts what is not yet printed: by the text of a column, or of a column of numbers the largest
 * first. */
void table_sort(struct table *t, size_t column);
/* Prints what is left and frees the table. */
void table_finish(struct table *t);

#endif
