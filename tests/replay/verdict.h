/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.h: what was run and what was wrong, said as file:line and counted. */
#ifndef REPLAY_VERDICT_H
#define REPLAY_VERDICT_H

#include <stdbool.h>
#include <stddef.h>

#include "script.h"

struct verdict {
	const char *path;                       /* of the file that is read now */
	const char **only;                      /* ids asked for */
	bool *only_met;                         /* of each: it was there */
	size_t n_only;                          /* 0 = all */
	bool verbose, list;                     /* list: nothing is run */
	unsigned n_passed, n_failed, n_skipped; /* scenarios */
	unsigned n_errors;                      /* lines and files that cannot be read */
};

/* Is this scenario asked for? */
bool verdict_wants(struct verdict *v, const char *id);
/* One line that did not do what it says. */
void verdict_failure(struct verdict *v, const struct script_line *l, const char *id,
		     const char *expected, const char *found);
/* One line that is wrong itself. l = NULL: the whole file. */
void verdict_error(struct verdict *v, const struct script_line *l, const char *form, ...)
	__attribute__((format(printf, 3, 4)));

#endif
