/* SPDX-License-Identifier: Apache-2.0 */
/* process.h: what the kernel says of another process. */
#ifndef SHMS_PROCESS_H
#define SHMS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

/* Field 22 of /proc/<pid>/stat; 0 where it cannot be read. */
uint64_t shms_start_time(pid_t pid);
/* Was it killed, or did it end, and is not gone yet? Until it is, it holds what it has
 * open and locked: threads of idle rank that get no processor make that last. False
 * where it cannot be known. */
bool shms_dying(pid_t pid);

/* Fields of /proc/PID/stat, for the library and shmstored. Pure: whoever has the text
 * has read it, each in its own way. */

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
