/* SPDX-License-Identifier: Apache-2.0 */
/* policylevel.c: names of levels. */
#include "policylevel.h"

#include <string.h>
#include <strings.h>

static const char *const names[] = {"NEVER", "LOW", "MED", "HIGH", "ALWAYS", "AUTO"};

#define N_LEVELS (POLICYLEVEL_ALWAYS + 1)

static bool parse_digit(const char *text, enum policylevel *ret)
{
	if (text[0] < '0' || text[0] >= '0' + N_LEVELS || text[1])
		return false;
	*ret = (enum policylevel)(text[0] - '0');
	return true;
}

bool policylevel_parse(const char *text, enum policylevel *ret)
{
	static const char prefix[] = "priority:";
	enum policylevel priority;

	if (!strncasecmp(text, prefix, sizeof(prefix) - 1)) {
		text += sizeof(prefix) - 1;
		if (!strcasecmp(text, "MAX")) {
			*ret = POLICYLEVEL_NEVER;
			return true;
		}
		if (!parse_digit(text, &priority))
			return false;
		*ret = (enum policylevel)(POLICYLEVEL_ALWAYS - priority);
		return true;
	}
	if (parse_digit(text, ret))
		return true;
	if (!strcasecmp(text, "true") || !strcasecmp(text, "false")) {
		*ret = strcasecmp(text, "true") ? POLICYLEVEL_NEVER : POLICYLEVEL_ALWAYS;
		return true;
	}
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcasecmp(text, names[i])) {
			*ret = (enum policylevel)i;
			return true;
		}
	return false;
}

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
