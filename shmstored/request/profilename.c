/* SPDX-License-Identifier: Apache-2.0 */
/* profilename.c: see profilename.h. */
#include "profilename.h"

#include <string.h>

bool profilename_cut(char *text, struct profile_name *ret)
{
	char *func = strchr(text, '\n'), *group = func ? strchr(func + 1, '\n') : NULL;

	if (!group || strchr(group + 1, '\n') || func == text || group == func + 1)
		return false;
	*func = *group = '\0';
	*ret = (struct profile_name){text, func + 1, group + 1};
	return strlen(ret->lang) <= PROFILE_NAME && strlen(ret->func) <= PROFILE_NAME &&
	       strlen(ret->group) <= PROFILE_NAME;
}
