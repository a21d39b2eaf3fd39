/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbcommand.h: one line of an arbiter scenario: verb, words, key=value words, and what is expected
 * behind "->". The verbs are in four tables: arbdo.c, arbask.c (bytes), arbsee.c (what is looked
 * at), arbsend.c (messages as they are).
 */
#ifndef REPLAY_ARBCOMMAND_H
#define REPLAY_ARBCOMMAND_H

#include "arbworld.h"
#include "script.h"

struct arbcommand {
	const struct script_line *line;
	const struct arbverb *verb; /* NULL: loop, endloop */
	char **args;                /* without verb and options */
	size_t n_args;
	char **options; /* key=value */
	size_t n_options;
	const char *expected; /* "BLOCKED|RETRY"; NULL = not said */
	uint64_t n_times;     /* loop */
	size_t end;           /* loop: its endloop */
};

struct arbanswer {
	char found[256];
	char expected[256]; /* of what is looked at; "" = what the line says behind "->" */
	bool holds;         /* of what is looked at */
	const char *wrong;  /* the line makes no sense here: static; NULL = it does */
};

struct arbverb {
	const char *name;
	size_t min, max;        /* words */
	const char *options;    /* keys that may be given, "a,b"; "*" = any */
	const char *by_default; /* expected where nothing is said; NULL = anything */
	void (*fn)(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a);
};

extern const struct arbverb arbdo_verbs[], arbask_verbs[], arbsee_verbs[],
	arbsend_verbs[]; /* end with a name of NULL */

/* The value of an option; NULL = not given. */
const char *arbcommand_option(const struct arbcommand *c, const char *key);
/* Numbers of words and options. They set a->wrong and return 0 where it is none. An
 * option that is not given: 0. */
uint64_t arbcommand_bytes(const char *word, struct arbanswer *a);
int64_t arbcommand_option_integer(const struct arbcommand *c, const char *key, struct arbanswer *a);

/* Look up names. They set a->wrong and return 0 or NULL where a name means nothing, or there is no
 * memory. Tasks and threads are made. */
uint64_t arbcommand_pool(const struct arbworld *w, const char *name, struct arbanswer *a);
uint64_t arbcommand_task(struct arbworld *w, const char *name, struct arbanswer *a);
struct arbworld_thread *arbcommand_thread(struct arbworld *w, const char *name,
					  struct arbanswer *a);
struct arbworld_reservation *arbcommand_reservation(const struct arbworld *w, const char *name,
						    struct arbanswer *a);

/* Sets found to this outcome. */
void arbcommand_say(struct arbanswer *a, enum arb_outcome o);
/* The words that scripts have for outcomes: "OOM" for ARB_NOMEM. */
const char *arbcommand_outcome(enum arb_outcome o);
/* Is it a word for an outcome or a state? */
bool arbcommand_is_word(const char *word, size_t n);
/* Is found one of "A|B"? */
bool arbcommand_is_one_of(const char *found, const char *alternatives);

#endif
