/* SPDX-License-Identifier: Apache-2.0 */
/* arbplay.h: one game of the arbiter's fuzz: random messages, then all goes home; what was said is
 * kept, and can be said again. */
#ifndef ARBPLAY_H
#define ARBPLAY_H

#include <stdio.h>

#include "arbchance.h"

struct arbplay_line {
	struct arb_message msg; /* its lists are those below */
	uint64_t now_ns, list[ARB_LIST_MAX], amounts[ARB_LIST_MAX];
	enum arb_outcome outcome;
};

struct arbplay {
	struct arbchance f;
	struct arbplay_line *lines;
	size_t n, n_room;
	size_t n_random; /* lines before all goes home */
};

struct arbplay *arbplay_new(void); /* NULL: no memory */
void arbplay_free(struct arbplay *p);

/*
 * A game of n_messages. The seed decides all of it. In the end everybody who can go on gives back
 * and leaves, until nobody waits, without anybody being cancelled; then the books must be empty.
 * false: a rule was broken by the last of the lines; p->f.m.wrong says which.
 */
bool arbplay_run(struct arbplay *p, uint64_t seed, size_t n_messages);

/* arbshrink.c: leaves out of the lines whatever is not needed to break the same rule. Takes some
 * thousand games of the remaining lines. */
void arbplay_shrink(struct arbplay *p);
/* The lines, as a scenario for shmstore-replay. */
void arbplay_print(const struct arbplay *p, uint64_t seed, FILE *to);

#endif
