/* SPDX-License-Identifier: Apache-2.0 */
/*
 * script.h: a scenario file as lines of words. Both formats share it: UTF-8, one command per line,
 * '#' at the start or after a blank begins a comment. In one of them quotes make one word of
 * several and protect a '#'; in the other they are characters like others.
 */
#ifndef REPLAY_SCRIPT_H
#define REPLAY_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct script_line {
	unsigned number; /* from 1 */
	char *text;      /* as it stands, without comment and blanks around */
	char **words;    /* with quotes, "of several words" is one, without them */
	size_t n_words;  /* never 0: empty lines are left out */
	const char *bad; /* what is wrong with it; NULL = nothing */
};

struct script {
	const char *path; /* borrowed */
	char *bytes;
	size_t size;
	struct script_line *lines;
	size_t n_lines;
};

#define SCRIPT_NULL ((struct script){0})

/* Reads it whole. Return: 0, or -errno: the file could not be read, or there is no memory. */
int script_read(struct script *s, const char *path);
/* Whether the first word that is in no comment is this one. */
bool script_begins(const struct script *s, const char *word);
/* Cuts it into lines, once. Return: 0, or -ENOMEM. A line that is wrong is no failure: see bad. */
int script_cut(struct script *s, bool quotes);
void script_deinit(struct script *s);

/* "12", "5M": an integer, with K M G T as powers of 1024. false: it is
 * none, or more than 64 bits. */
bool script_bytes(const char *word, uint64_t *ret);
/* "-3": false as above. */
bool script_integer(const char *word, int64_t *ret);

#endif
