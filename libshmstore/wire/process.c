/* SPDX-License-Identifier: Apache-2.0 */
/* process.c: see process.h. */
#include "process.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cleanup.h"
#include "procstat.h"

/* A field of /proc/<pid>/stat; NULL where it cannot be read. */
static const char *field_of(pid_t pid, enum procstat_field field, char text[PROCSTAT_MAX])
{
	char path[48];
	ssize_t got;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	got = fd >= 0 ? read(fd, text, PROCSTAT_MAX - 1) : -1;
	if (got <= 0)
		return NULL;
	text[got] = '\0';
	return procstat_find(text, field);
}

uint64_t shms_start_time(pid_t pid)
{
	char text[PROCSTAT_MAX];
	const char *start = field_of(pid, PROCSTAT_START_TICKS, text);

	return start ? strtoull(start, NULL, 10) : 0;
}

#define PF_EXITING 0x4u /* of include/linux/sched.h */

bool shms_dying(pid_t pid)
{
	char text[PROCSTAT_MAX];
	const char *flags = field_of(pid, PROCSTAT_FLAGS, text);

	return flags && (strtoul(flags, NULL, 10) & PF_EXITING);
}
