/* SPDX-License-Identifier: Apache-2.0 */
/*
 * owner.c: pids are evidence, never a reason: what a page says of its owner's pid is of the owner's pid namespace, and may be of a
 * process long gone. The start time tells two processes of one pid apart, and the pidfd, once checked, stays with its process.
 */
#include "owner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "procstat.h"

/* The file /proc/PID/<name> as text; false where it cannot be read. Does not block: procfs is memory. */
static bool read_proc(pid_t pid, const char *name, char *ret, size_t size)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, ret, size - 1);
	close(fd);
	if (n < 0)
		return false;
	ret[n] = '\0';
	return true;
}

/* 0: not to be had. */
static uint64_t start_time_of(pid_t pid)
{
	char text[PROCSTAT_MAX];
	const char *at = read_proc(pid, "stat", text, sizeof(text)) ? procstat_find(text, PROCSTAT_START_TICKS) : NULL;

	return at ? strtoull(at, NULL, 10) : 0;
}

int owner_open(pid_t pid, uint64_t start_time)
{
	int fd;

	if (pid <= 0)
		return -ESRCH;
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return errno == EINVAL ? -ESRCH : -errno; /* EINVAL: a thread's */
	/* After the pidfd: what is read now is of its process, or of none. */
	if (start_time_of(pid) != start_time) {
		close(fd);
		return -ESRCH;
	}
	return fd;
}

bool owner_is(pid_t pid, pid_t inner)
{
	char text[4096], *at, *end;

	if (pid == inner)
		return true;
	if (pid <= 0)
		return false;
	if (!read_proc(pid, "status", text, sizeof(text)))
		return false;
	at = strstr(text, "\nNSpid:");
	if (!at)
		return false;
	at += strlen("\nNSpid:");
	while (*at == '\t') {
		if (strtol(at + 1, &end, 10) == inner)
			return true;
		at = end;
	}
	return false;
}
