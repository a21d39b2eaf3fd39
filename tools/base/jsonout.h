/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jsonout.h: prints the documents that jsonmake.h makes. Every function ends the program where
 * memory was out, for what it prints or while that was made.
 */
#ifndef JSONOUT_H
#define JSONOUT_H

#include <stdbool.h>

#include "admin.h"
#include "jsonmake.h"

struct json_object;

/* Prints o on one line, or indented where standard output is a terminal, and frees it. */
void json_print(struct json_object *o);
/* Prints o, or has it printed as text where JSON is not asked for, and frees it. */
void json_show(const struct admin *a, struct json_object *o,
	       void (*text)(const struct admin *a, const struct json_object *o));
/* The same with the sentence that figure_print() makes of text. */
void json_say(const struct admin *a, struct json_object *o, const char *text);
/* Prints o on one line whatever the output is, and frees it. */
void json_print_line(struct json_object *o);

/* An object of one list of any length, printed item by item: begin, items, end. */
void json_stream_begin(const char *name);
void json_stream_item(struct json_object *item, bool first);
void json_stream_end(void);

/* Prints o (and frees it) but for its end, with one more member, a string: whose text the caller
 * prints; then ends it. */
void json_raw_begin(struct json_object *o, const char *name);
void json_raw_end(void);

#endif
