/* SPDX-License-Identifier: Apache-2.0 */
/* jsonin.h: reads members of a document; missing ones and other types read as nothing. Behind that
 * are the forms in which people see them (human.c). */
#ifndef JSONIN_H
#define JSONIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "admin.h"
#include "fields.h"

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

/* Prints (and frees) the next item of a list that is printed while it is found. */
void json_stream_item(struct json_object *item, bool first);
/* Prints o (and frees it) but for its end, with one more member, a string: the caller prints its
 * text, and "} behind that. */
void json_raw_begin(struct json_object *o, const char *name);

/* human.c writes and reads sizes, numbers and ids as people do. */
/* All texts are static, and of this thread: each stays until eight more were asked for. */

/* "0", "512 B", "64 KiB", "1.50 GiB": three digits at least, never rounded up into the
 * next unit. */
const char *human_size(uint64_t bytes);
/* The same, or plain digits where exact is true. */
const char *human_bytes(uint64_t bytes, bool exact);
/* "5 s", "3 min", "2 h 10 min", "4 d 1 h": seconds, rounded down; below 0 is 0. */
const char *human_duration(double seconds);
/* "1 store", "2 stores". */
const char *human_count(uint64_t n, const char *noun);
/* A whole number, digits only. False where text is none, or it is above most. */
bool human_number(const char *text, uint64_t most, uint64_t *ret);
/* An id of the arbiter's, which is of one client and its own number: "3:7" for people, one number
 * in JSON. Contexts and tasks are numbered apart. */
const char *human_id(uint64_t id);
bool human_parse_id(const char *text, uint64_t *ret_id);
/* "4096", "64K", "1.5GiB", "8g": units are powers of 1024; "50%" is of whole. False where text
 * is no size, or over 2^63. */
bool human_parse(const char *text, uint64_t whole, uint64_t *ret_bytes);

/* Members of a document as people read them: in a table's cell, or in a sentence. */
enum figure_form {
	FIGURE_TEXT,   /* a string of any origin, escaped for a terminal; a number as it is */
	FIGURE_RAW,    /* a string that is escaped already, such as a key */
	FIGURE_FLAG,   /* yes or no */
	FIGURE_COUNT,  /* from here on numbers */
	FIGURE_SIZE,   /* bytes, human unless exact ones are wanted; below 0 as it is */
	FIGURE_RATE,   /* whole ones a second */
	FIGURE_SIZES,  /* bytes a second */
	FIGURE_TIME,   /* seconds, in one or two units */
	FIGURE_TENTHS, /* seconds, to the tenth */
	FIGURE_MS,     /* milliseconds, as seconds to the tenth */
	FIGURE_LONG,   /* milliseconds, as FIGURE_TIME */
	FIGURE_LATELY, /* milliseconds: to the tenth of a second below ten, else as FIGURE_TIME */
	FIGURE_AGO,    /* a time since the epoch: how long ago, in one unit */
	FIGURE_ID,     /* an id of the arbiter's: "3:7" */
	FIGURE_FORMS
};

/* Any bytes, such as a key's, escaped for a terminal (fields.h); on the heap. */
char *figure_escaped(const void *bytes, size_t size);
/* Prints text of whoever, escaped. */
void figure_print_escaped(const char *text);
/* The member's text, on the heap; *ret_number is what it sorts by. value: NULL where it is missing:
 * nothing, or 0. */
char *figure_text(struct json_object *value, enum figure_form form, bool exact,
		  uint64_t *ret_number);
/*
 * Prints text with parts of it replaced. Members may be paths (jsonin_at_path()).
 *
 *   {member}              that member of o; {member:size}, :time, :id, :rate, :sizes, :tenths and
 *                         :raw are of these forms, any other word is a noun that is counted
 *                         ("1 store", "2 stores")
 *   [member?text|other]   text where the member is neither missing nor false, 0 or empty, else
 *                         other, if that is there
 *   [has member?text]     also where it is false, 0 or empty
 *   [member=word?text]    where it is that word
 */
void figure_print(const struct json_object *o, bool exact, const char *text);
/* The same on the heap; *ret_number is what the last member in it sorts by. */
char *figure_new(const struct json_object *o, bool exact, const char *text, uint64_t *ret_number);

#endif
