/* SPDX-License-Identifier: Apache-2.0 */
/* table.h: aligned tables for people, by libsmartcols: its width and its colours follow the terminal. */
#ifndef TABLE_H
#define TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "admin.h"

struct libscols_table;
struct libscols_line;
struct json_object;

#define TABLE_RIGHT  (1u << 0) /* numbers */
#define TABLE_TRUNC  (1u << 1) /* gives way where the terminal is too narrow */
#define TABLE_WRAP   (1u << 2) /* goes on in a second line there */
#define TABLE_HIDDEN (1u << 3) /* is not there */

struct table_column {
	const char *name;
	unsigned flags;
};

/*
 * Defines the columns of a table, the enumeration of their numbers, and how many there are: n, all from one list, of X(ID, name, flags).
 * NOLINTBEGIN(bugprone-macro-parentheses): they are names
 */
#define TABLE_COLUMNS(columns, LIST, n) \
	enum {                          \
		LIST(TABLE_COLUMN_ID) n \
	};                              \
	static const struct table_column columns[] = {LIST(TABLE_COLUMN)}
/* NOLINTEND(bugprone-macro-parentheses) */
#define TABLE_COLUMN_ID(id, ...) id,
#define TABLE_COLUMN(id, ...)    [id] = {__VA_ARGS__},

struct table {
	struct libscols_table *scols;
	struct libscols_line *line; /* being filled */
	size_t n_lines;             /* not yet printed */
	bool exact;                 /* sizes in bytes */
	bool hold;                  /* all is printed at the end */
};

/* Ends the program where memory is out, as the others do. */
void table_init(struct table *t, const struct admin *a, const struct table_column *columns, size_t n_columns);
/* Where answers are in JSON: a list to put them into; else NULL, and the table is made. */
struct json_object *table_or_list(struct table *t, const struct admin *a, const struct table_column *columns,
				  size_t n_columns);
void table_no_headings(struct table *t);
/* Prints the heading of the next of several tables. */
void table_heading(const char *text, bool first);
/* Begins a line; the others fill its cells. Every 1000 lines are printed on the way, so that memory is bounded. */
void table_row(struct table *t);
/* Text of any origin, escaped for a terminal as keytext.h says. */
void table_text(struct table *t, size_t column, const char *text);
/* A key, escaped. */
void table_key(struct table *t, size_t column, const void *key, size_t key_size);
/* Text of our own: printed as it is. */
void table_printf(struct table *t, size_t column, const char *format, ...) __attribute__((format(printf, 3, 4)));
void table_size(struct table *t, size_t column, uint64_t bytes);
/* used of size in percent, coloured where it is near to full; size 0: no limit. */
void table_fill(struct table *t, size_t column, uint64_t used, uint64_t size);
void table_count(struct table *t, size_t column, uint64_t n);
/* How long ago that was (CLOCK_REALTIME), in one unit. */
void table_age(struct table *t, size_t column, int64_t since_ns);
/* The colour of a cell by name ("red", "yellow", "green", "bold"), seen on terminals only. */
void table_color(struct table *t, size_t column, const char *color);
/* From here on nothing is printed before the end, so that the table can be sorted. */
void table_hold(struct table *t);
/* Sorts what is not yet printed by a column of sizes, counts or ages, the largest first. */
void table_sort_down(struct table *t, size_t column);
/* Sorts what is not yet printed by the text of a column. */
void table_sort(struct table *t, size_t column);
/* Prints what is left and frees the table. */
void table_finish(struct table *t);

#endif
