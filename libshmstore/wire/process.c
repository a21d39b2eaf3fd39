/* SPDX-License-Identifier: Apache-2.0 */
/* process.c: see process.h. */
#include "process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"

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

/* Is SIGKILL on its way to it? */
static bool is_killed(pid_t pid)
{
	static const char *const names[] = {"\nSigPnd:", "\nShdPnd:"};
	char path[48], text[4096];
	ssize_t got;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	got = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
	text[got > 0 ? got : 0] = '\0';
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
