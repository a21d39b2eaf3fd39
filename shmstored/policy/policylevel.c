/* SPDX-License-Identifier: Apache-2.0 */
/* policylevel.c: names of levels. */
#include "policylevel.h"

#include <stddef.h>

static const char *const names[] = {"NEVER", "LOW", "MED", "HIGH", "ALWAYS", "AUTO"};

const char *policylevel_name(enum policylevel level)
{
	return (size_t)level < sizeof(names) / sizeof(names[0]) ? names[level] : "UNSAID";
}

enum policylevel policylevel_resolve(const struct policylevel_wish *w)
{
	enum policylevel level = w->instance != POLICYLEVEL_UNSAID ? w->instance : w->class;

	if (level == POLICYLEVEL_UNSAID)
		level = w->automatic ? POLICYLEVEL_AUTO : POLICYLEVEL_NEVER;
	if (level == POLICYLEVEL_AUTO)
		level = w->retriable && !w->n_children ? POLICYLEVEL_HIGH : POLICYLEVEL_NEVER;
	return level;
}
