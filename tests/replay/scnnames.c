/* SPDX-License-Identifier: Apache-2.0 */
/* scnnames.c: a list; cases have tens of names. */
#include "scnnames.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

uint64_t scn_names_find(const struct scn_names *names, const char *name)
{
	for (size_t i = 0; i < names->n; i++)
		if (!strcmp(names->names[i], name))
			return i + 1;
	return 0;
}

uint64_t scn_names_number(struct scn_names *names, const char *name)
{
	uint64_t number = scn_names_find(names, name);

	if (number || strlen(name) > SCN_NAME_MAX)
		return number;
	if (names->n == names->room) {
		size_t room = names->room ? 2 * names->room : 16;
		char(*more)[SCN_NAME_MAX + 1] = reallocarray(names->names, room, sizeof(*more));

		if (!more)
			return 0;
		names->names = more;
		names->room = room;
	}
	memcpy(names->names[names->n], name, strlen(name) + 1);
	return ++names->n;
}

const char *scn_names_name(const struct scn_names *names, uint64_t number)
{
	return names->names[number - 1];
}

void scn_names_deinit(struct scn_names *names)
{
	free(names->names);
	*names = (struct scn_names){0};
}

bool scn_level(const char *text, enum policylevel *ret)
{
	for (enum policylevel l = POLICYLEVEL_NEVER; l <= POLICYLEVEL_AUTO; l++) {
		if (strcasecmp(text, policylevel_name(l)) != 0 &&
		    !(text[0] == '0' + (int)l && !text[1]))
			continue;
		*ret = l;
		return true;
	}
	return false;
}
