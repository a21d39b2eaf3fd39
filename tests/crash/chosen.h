/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chosen.h: the names that stand behind the options on a command line: is one among them, and
 * was each played?
 */
#ifndef CHOSEN_H
#define CHOSEN_H

#include <argp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct chosen {
	char *const *names; /* of the command line; up to a NULL */
};

/* For ARGP_KEY_ARGS: takes them all. */
static inline void chosen_take(struct chosen *c, const struct argp_state *state)
{
	c->names = state->argv + state->next;
}

/* None at all chooses each. */
static inline bool chosen_has(const struct chosen *c, const char *name)
{
	if (!c->names || !c->names[0])
		return true;
	for (char *const *at = c->names; *at; at++)
		if (strcmp(*at, name) == 0)
			return true;
	return false;
}

/* The program's exit status: 1 where one failed, or where fewer were played than were named. */
static inline int chosen_status(const struct chosen *c, const char *program, unsigned n_passed,
				unsigned n_failed)
{
	unsigned n_named = 0;

	while (c->names && c->names[n_named])
		n_named++;
	if (n_passed + n_failed < (n_named ? n_named : 1)) {
		printf("FAIL %s: %u were named, %u could be played\n", program, n_named,
		       n_passed + n_failed);
		n_failed++;
	}
	printf("%s: %u passed, %u failed\n", program, n_passed, n_failed);
	return n_failed ? 1 : 0;
}

#endif
