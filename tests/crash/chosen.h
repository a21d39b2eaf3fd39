/* SPDX-License-Identifier: Apache-2.0 */
/* chosen.h: the names that stand behind the options on a command line, and
 * whether one is among them. */
#ifndef CHOSEN_H
#define CHOSEN_H

#include <argp.h>
#include <stdbool.h>
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

#endif
