/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.c: says failures on the standard output, one line each, where an editor
 * finds them: file:line first. */
#include "verdict.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool verdict_wants(struct verdict *v, const char *id)
{
	for (size_t i = 0; i < v->n_only; i++)
		if (!strcmp(v->only[i], id)) {
			v->only_met[i] = true;
			return true;
		}
	return v->n_only == 0;
}

void verdict_failure(struct verdict *v, const struct script_line *l, const char *id,
		     const char *expected, const char *found)
{
	printf("%s:%u: %s: %s: expected %s, found %s\n", v->path, l->number, id, l->text, expected,
	       found);
}

void verdict_error(struct verdict *v, const struct script_line *l, const char *form, ...)
{
	va_list args;

	if (l)
		printf("%s:%u: error: ", v->path, l->number);
	else
		printf("%s: error: ", v->path);
	va_start(args, form);
	vprintf(form, args);
	va_end(args);
	if (l)
		printf(": %s", l->text);
	putchar('\n');
	v->n_errors++;
}
