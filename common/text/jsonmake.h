/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jsonmake.h: documents in JSON, by json-c, for the daemon and the tool. Text not printable as
 * UTF-8 is escaped (below), so that what comes out is always valid. Where memory is out, a
 * member is missing or null, and jsonmake_end() says so: looked at once, at the end, instead of
 * after every member. Each thread has its own.
 */
#ifndef JSONMAKE_H
#define JSONMAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Forgets earlier failures. */
void jsonmake_begin(void);
/* o; NULL: memory was out since then, and o is gone. */
struct json_object *jsonmake_end(struct json_object *o);

struct json_object *jsonmake_new(void);
struct json_object *jsonmake_new_list(void);
/* These take child and item over, also where they fail; NULL is written as null. child is
 * returned for use until o goes. */
struct json_object *jsonmake_child(struct json_object *o, const char *name,
				   struct json_object *child);
struct json_object *jsonmake_append(struct json_object *list, struct json_object *item);
void jsonmake_append_u64(struct json_object *list, uint64_t value);
void jsonmake_append_text(struct json_object *list, const char *text);
void jsonmake_append_seconds(struct json_object *list, int64_t ns);

void jsonmake_u64(struct json_object *o, const char *name, uint64_t value);
void jsonmake_i64(struct json_object *o, const char *name, int64_t value);
void jsonmake_real(struct json_object *o, const char *name, double value); /* with three decimals */
void jsonmake_flag(struct json_object *o, const char *name, bool value);
void jsonmake_null(struct json_object *o, const char *name);
/* NULL becomes null */
void jsonmake_text(struct json_object *o, const char *name, const char *text);
/* The same of any bytes. */
void jsonmake_key(struct json_object *o, const char *name, const void *key, size_t key_size);
/* As it is where it is UTF-8, control characters too, which json-c escapes: what people wrote,
 * of several lines perhaps. */
void jsonmake_prose(struct json_object *o, const char *name, const char *text);
/* A time or a duration of ns as seconds, with three decimals. */
void jsonmake_seconds(struct json_object *o, const char *name, int64_t ns);

/*
 * Bytes of whoever (keys, paths, names of processes) as one line of valid UTF-8, and
 * back. Printable text stands for itself, every other byte is \xNN, and so is a backslash before
 * what would read as \xNN: what is shown can always be typed. Pure.
 */
/* Whether all of it is printable; in this, \xNN stands for itself. */
bool printable_is(const void *text, size_t size);
/* On the heap; NULL: no memory. */
char *printable_new(const void *text, size_t size);
/* Writes the bytes that text stands for to ret (room bytes) and their number.
 * False: more bytes than that. */
bool printable_parse(const char *text, void *ret, size_t room, size_t *ret_size);

#endif
