/* SPDX-License-Identifier: Apache-2.0 */
/* jsonin.h: reads members of a document; missing ones and other types read as nothing. */
#ifndef JSONIN_H
#define JSONIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "admin.h"
#include "jsonmake.h"

struct json_object;

/* The document in text (n bytes), to be put; NULL: it is no JSON object. */
struct json_object *jsonin_parse(const char *text, size_t n);
void jsonin_free(struct json_object *o);
static inline void jsonin_give_back(struct json_object **o)
{
	jsonin_free(*o);
}
/* A local that is freed. */
#define _json_ __attribute__((cleanup(jsonin_give_back)))

/* A member that is an object; NULL. o may be NULL in all of these. */
struct json_object *jsonin_object(const struct json_object *o, const char *name);
/* A member that is a list: how many it has, and the i-th. */
size_t jsonin_count(const struct json_object *o, const char *name);
struct json_object *jsonin_at(const struct json_object *o, const char *name, size_t i);
/* The member at a path such as "credit.outstanding"; of several paths, "linked|ledger.linked", the
 * first that is there and no empty text. NULL: missing, or null. */
struct json_object *jsonin_at_path(const struct json_object *o, const char *path);
/*
 * The list's objects, to be freed, in the order of these members (jsonin_at_path(); ended by NULL):
 * numbers and texts upwards, with a minus before its name downwards.
 */
const struct json_object **jsonin_sorted(const struct json_object *o, const char *list,
					 const char *const *order, size_t *ret_n);
/* Adds the members of these names (ended by NULL) to another object; missing ones are null. */
void jsonin_copy(struct json_object *to, const struct json_object *from,
		 const char *const *members);
bool jsonin_has(const struct json_object *o, const char *name); /* and it is not null */
uint64_t jsonin_u64(const struct json_object *o, const char *name);
int64_t jsonin_i64(const struct json_object *o, const char *name);
double jsonin_real(const struct json_object *o, const char *name);
bool jsonin_flag(const struct json_object *o, const char *name);
/* "" where there is none. o's. */
const char *jsonin_text(const struct json_object *o, const char *name);

/* Every function from here on ends the program where memory was out for its document. */
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
