/* SPDX-License-Identifier: Apache-2.0 */
/* procstat.h: fields of /proc/PID/stat, for the library and shmstored. Pure: whoever has the text
 * has read it, each in its own way. */
#ifndef PROCSTAT_H
#define PROCSTAT_H

#include <stddef.h>
#include <string.h>

#define PROCSTAT_MAX 1024u /* bytes of the file, with room for a NUL */

/* As proc(5) numbers them, from 1. */
enum procstat_field {
	PROCSTAT_PARENT = 4,
	PROCSTAT_FLAGS = 9,
	PROCSTAT_USER_TICKS = 14,
	PROCSTAT_SYSTEM_TICKS = 15,
	PROCSTAT_THREADS = 20,
	PROCSTAT_START_TICKS = 22, /* since the host was booted */
	PROCSTAT_BYTES = 23,
	PROCSTAT_RESIDENT_PAGES = 24,
};

/* Where a field begins; NULL: the text does not have it. The name, the second one, is in
 * parentheses and may hold anything: it ends with the last of them. */
static inline const char *procstat_find(const char *text, enum procstat_field field)
{
	const char *at = strrchr(text, ')');

	for (int i = 2; at && i < (int)field; i++)
		at = strchr(at + 1, ' ');
	return at ? at + 1 : NULL;
}

#endif
