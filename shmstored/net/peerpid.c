/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peerpid.c: the kernel's own word (SO_PEERPIDFD, from 6.5 on), else a descriptor by number, of a process that is older than its connection.
 *
 * Of the descriptor by number: the process is looked at after the opening, and still lives after the look. A process
 * that began before the connection was accepted and has the number now had it then; so it is the one that connected.
 */
#include "peerpid.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "procstat.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define SECOND_NS UINT64_C(1000000000)

static uint64_t now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

/* CLOCK_BOOTTIME of its start, rounded down to a tick. -errno. */
static int start_of(pid_t pid, uint64_t *ret_ns)
{
	char path[64], text[PROCSTAT_MAX];
	const char *at;
	uint64_t ticks;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return -ESRCH;
	text[n] = '\0';
	at = procstat_find(text, PROCSTAT_START_TICKS);
	if (!at || sscanf(at, "%" SCNu64, &ticks) != 1)
		return -ESRCH;
	*ret_ns = ticks * (SECOND_NS / (uint64_t)sysconf(_SC_CLK_TCK));
	return 0;
}

static int open_by_number(pid_t pid, uint64_t since_ns)
{
	struct pollfd p = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
	uint64_t age = now_ns(CLOCK_MONOTONIC) - since_ns, start_ns = 0;
	int r;

	if (p.fd < 0)
		return -errno;
	r = start_of(pid, &start_ns);
	if (r == 0 && (poll(&p, 1, 0) != 0 || start_ns + age > now_ns(CLOCK_BOOTTIME)))
		r = -ESRCH;
	if (r < 0)
		close(p.fd);
	return r < 0 ? r : p.fd;
}

int peerpid_open(int fd, pid_t pid, uint64_t since_ns)
{
	socklen_t size = sizeof(int);
	int pidfd = -1;

	if (pid <= 0)
		return -EPERM;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0)
		return pidfd;
	return errno == ENOPROTOOPT ? open_by_number(pid, since_ns) : -ESRCH;
}
