/* SPDX-License-Identifier: Apache-2.0 */
/* figure.h: members of a document as people read them: in a table's cell, or in a sentence. */
#ifndef FIGURE_H
#define FIGURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_object;

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
