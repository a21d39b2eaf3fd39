/* SPDX-License-Identifier: Apache-2.0 */
/* profilename.h: the name of a kind of tasks, as requests have it in their tail. */
#ifndef PROFILENAME_H
#define PROFILENAME_H

#include <stdbool.h>

#include "profile.h"

#define PROFILENAME_WRONG                                                                                        \
	"a kind of tasks is a language, a function and a group, each of 255 bytes at most and in a line of its " \
	"own; only the group may be empty"

/* "LANG\nFUNC\nGROUP", cut in place, where ret points to. False: it is none. */
bool profilename_cut(char *text, struct profile_name *ret);

#endif
