/* SPDX-License-Identifier: Apache-2.0 */
/* process.c: see process.h. */
#include "process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sys.h"

/* Reads that file of /proc/<pid>; "": it cannot be read. */
static const char *read_file(pid_t pid, const char *name, char *ret, size_t size)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	shms_read_text(path, ret, size);
	return ret;
}

/* A field of /proc/<pid>/stat; NULL where it cannot be read. */
static const char *field_of(pid_t pid, enum procstat_field field, char text[PROCSTAT_MAX])
{
	return procstat_find(read_file(pid, "stat", text, PROCSTAT_MAX), field);
}

uint64_t shms_start_time(pid_t pid)
{
	char text[PROCSTAT_MAX];
	const char *start = field_of(pid, PROCSTAT_START_TICKS, text);

	return start ? strtoull(start, NULL, 10) : 0;
}

#define PF_EXITING 0x4u /* of include/linux/sched.h */

/* Is SIGKILL on its way to it? */
static bool is_killed(pid_t pid)
{
	static const char *const names[] = {"\nSigPnd:", "\nShdPnd:"};
	char text[4096];

	read_file(pid, "status", text, sizeof(text));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *at = strstr(text, names[i]);

		if (at && (strtoull(at + strlen(names[i]), NULL, 16) & 1ull << (SIGKILL - 1)))
			return true;
	}
	return false;
}

bool shms_dying(pid_t pid)
{
	char text[PROCSTAT_MAX];
	const char *flags = field_of(pid, PROCSTAT_FLAGS, text);

	return (flags && (strtoul(flags, NULL, 10) & PF_EXITING)) || is_killed(pid);
}
