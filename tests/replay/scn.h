/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scn.h: scenarios of the form "SCN v1" (tests/scenarios/README.md), each for one pure
 * module of the daemon: its domain.
 *
 * A domain is a file scnNAME.c with one struct scn_domain, which scndomains.c lists. It has a
 * state of its own that each case begins anew, a function that does what a directive says, and
 * one that says what an expectation's key is now. The comparison, and the report of a
 * difference, are the same for all: scn.c.
 *
 * The functions here read the directive at hand. A word or an option that nobody asked for makes
 * the directive wrong, and so does one that is not what the function asks for; what was wrong first
 * is said, and the case ends there. Keys may be alternatives: "swaptotal|swap_total".
 */
#ifndef REPLAY_SCN_H
#define REPLAY_SCN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "amount.h"
#include "verdict.h"

struct scn; /* a case under way, and its directive at hand */

struct scn_domain {
	const char *name; /* as dom= says */
	size_t size;      /* of its state, which begins as zeros */
	void (*begin)(void *state);
	/* The directive: its verb is not "expect". false: no such verb. */
	bool (*verb)(void *state, struct scn *c, const char *verb);
	/* Says by scn_found() what key is now; the directive's words say of what. expected is what
	 * the line says, for lists of which it need not say all. false: no such key. */
	bool (*found)(void *state, struct scn *c, const char *key, const char *expected);
	void (*end)(void *state); /* NULL: nothing to free */
};

/* NULL: it is none. */
const struct scn_domain *scn_domain(const char *name);

/* Words behind the verb that are not KEY=VALUE, from 0. NULL: there are not so many. */
const char *scn_word(struct scn *c, size_t i);
size_t scn_n_words(const struct scn *c);
/* The same, but wrong without it. */
const char *scn_need_word(struct scn *c, size_t i);
/* NULL: it is not there. */
const char *scn_option(struct scn *c, const char *keys);
bool scn_named(const struct scn *c, const char *keys);

/* A value as it is; a size or "null"; a whole number; a fraction; 0 or 1. Without it: otherwise. */
const char *scn_text(struct scn *c, const char *keys, const char *otherwise);
struct amount scn_amount(struct scn *c, const char *keys, struct amount otherwise);
int64_t scn_number(struct scn *c, const char *keys, int64_t otherwise);
struct ratio scn_ratio(struct scn *c, const char *keys, struct ratio otherwise);
bool scn_flag(struct scn *c, const char *keys, bool otherwise);

/* Texts by themselves. */
bool scn_read_amount(const char *text, struct amount *ret); /* "12", "-3", "5M", "null" */
/* Cuts the next element off a list: *at goes behind it, ret has its text. false: no
 * more, or longer than room. */
bool scn_element(const char **at, char separator, char *ret, size_t room);
/* Names in the order that ties have: numbers by value, before names, which
 * are compared byte by byte. */
int scn_compare_names(const char *a, const char *b);

/* Adds to what was found. */
void scn_found(struct scn *c, const char *form, ...) __attribute__((format(printf, 2, 3)));
void scn_found_amount(struct scn *c, struct amount a);
/* A list's next element: with a comma before it unless it is the first. */
void scn_found_element(struct scn *c, const char *form, ...) __attribute__((format(printf, 2, 3)));
/* A list that remained empty is "none". */
void scn_found_end(struct scn *c);

/* The directive is wrong: the first call counts. */
void scn_wrong(struct scn *c, const char *form, ...) __attribute__((format(printf, 2, 3)));
bool scn_is_wrong(const struct scn *c);
/* A directive that expects something itself, as "repeat" does: what it found differs from what it
 * says. The first call counts. */
void scn_differs(struct scn *c, const char *expected, const char *form, ...)
	__attribute__((format(printf, 3, 4)));
/* Are these the same? Sizes are compared as numbers, also within lists; every word
 * for "unknown" is the same. */
bool scn_same(const char *expected, const char *found);

#endif
