/* SPDX-License-Identifier: Apache-2.0 */
/* human.h: sizes, numbers and ids as people write and read them. */
#ifndef HUMAN_H
#define HUMAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

struct json_object;

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

/* Any bytes, such as a key's, escaped for a terminal (printable.h); on the heap. */
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
