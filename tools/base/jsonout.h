/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jsonout.h: answers in JSON, by json-c. Text that is not valid UTF-8 is escaped as keytext.h says, so that the output is
 * always valid JSON. Every function ends the program where memory is out; json_child() and json_append() take ownership.
 */
#ifndef JSONOUT_H
#define JSONOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_object;

struct json_object *json_new(void);
struct json_object *json_new_list(void);
struct json_object *json_child(struct json_object *o, const char *name, struct json_object *child); /* returns child */
void json_append(struct json_object *list, struct json_object *item);
void json_u64(struct json_object *o, const char *name, uint64_t value);
void json_i64(struct json_object *o, const char *name, int64_t value);
void json_real(struct json_object *o, const char *name, double value); /* with three decimals */
void json_flag(struct json_object *o, const char *name, bool value);
void json_text(struct json_object *o, const char *name, const char *text); /* NULL becomes null */
/* A key as keytext.h writes it; NULL becomes null. */
void json_key(struct json_object *o, const char *name, const void *key, size_t key_size);

/* Prints o on one line, or indented where standard output is a terminal, and frees it. */
void json_print(struct json_object *o);
/* Prints o on one line whatever the output is, at once, and frees it. */
void json_print_line(struct json_object *o);

/* A list of any length, printed item by item: begin, items, end; members may be added to the end. */
void json_stream_begin(const char *name);
void json_stream_item(struct json_object *item, bool first);
/* Adds the members of more (may be NULL) behind the list and ends the object. Frees more. */
void json_stream_end(struct json_object *more);

/* Prints o (and frees it) but for its end, with one more member, a string: whose text the caller prints; then ends it. */
void json_raw_begin(struct json_object *o, const char *name);
void json_raw_end(void);

#endif
