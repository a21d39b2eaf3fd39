/* SPDX-License-Identifier: Apache-2.0 */
#include "simproc.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "simclock.h"
#include "simtrace.h"

#define PROCS_MAX 4096
#define FDS_MAX   4096

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

struct process {
	uid_t uid;
	uint64_t start_time; /* ticks since the boot */
	int event_fd;
	bool ended;
};

static struct {
	char root[PATH_MAX];
	struct twister *random;
	void (*killed)(pid_t pid, int number);
	struct process all[PROCS_MAX];
	int n;
	pid_t at[FDS_MAX]; /* by the daemon's descriptor */
	unsigned refuse;
} procs;

int __wrap_open(const char *path, int flags, ...);
int __real_open(const char *path, int flags, ...);
DIR *__wrap_opendir(const char *path);
DIR *__real_opendir(const char *path);
long __wrap_syscall(long number, ...);
long __real_syscall(long number, ...);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size);
int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *size);
ssize_t __wrap_getrandom(void *to, size_t size, unsigned flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *m, int flags);
ssize_t __real_recvmsg(int fd, struct msghdr *m, int flags);

/* ---- processes ------------------------------------------------------------------------------- */

static struct process *find(pid_t pid)
{
	int i = pid - SIMPROC_FIRST;

	return i >= 0 && i < procs.n ? &procs.all[i] : NULL;
}

static void write_file(pid_t pid, const char *name, const char *text)
{
	char path[PATH_MAX + 64];
	int fd;

	snprintf(path, sizeof(path), "%s/%d/%s", procs.root, (int)pid, name);
	fd = __real_open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	SIM_ENSURE(fd >= 0);
	SIM_ENSURE(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	SIM_ENSURE(ftruncate(fd, (off_t)strlen(text)) == 0);
	close(fd);
}

void simproc_begin(const char *root, struct twister *random, void (*killed)(pid_t pid, int number))
{
	snprintf(procs.root, sizeof(procs.root), "%s", root);
	procs.random = random;
	procs.killed = killed;
	procs.n = 0;
	procs.refuse = 0;
}

pid_t simproc_new(uid_t uid)
{
	pid_t pid = SIMPROC_FIRST + procs.n;
	struct process *p = &procs.all[procs.n++];
	char path[PATH_MAX + 64], text[512];

	SIM_ENSURE(procs.n < PROCS_MAX);
	*p = (struct process){.uid = uid,
			      .start_time = simclock_now() / 10000000,
			      .event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
	SIM_ENSURE(p->event_fd >= 0);
	snprintf(path, sizeof(path), "%s/%d", procs.root, (int)pid);
	SIM_ENSURE(mkdir(path, 0755) == 0);
	snprintf(text, sizeof(text),
		 "%d (client) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %llu 0 0 0 0 0 0 0 0 0 0 0 "
		 "0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
		 (int)pid, (unsigned long long)p->start_time);
	write_file(pid, "stat", text);
	snprintf(text, sizeof(text),
		 "Name:\tclient\nUid:\t%u\t%u\t%u\t%u\nNSpid:\t%d\nVmSwap:\t0 kB\n", uid, uid, uid,
		 uid, (int)pid);
	write_file(pid, "status", text);
	write_file(pid, "maps", "");
	simproc_grow(pid, 1 << 20);
	return pid;
}

uint64_t simproc_start_time(pid_t pid)
{
	return find(pid)->start_time;
}

void simproc_end(pid_t pid)
{
	static const char *const names[] = {"stat", "status", "maps", "statm"};
	struct process *p = find(pid);
	char path[PATH_MAX + 64];
	uint64_t one = 1;

	if (!p || p->ended)
		return;
	p->ended = true;
	SIM_ENSURE(write(p->event_fd, &one, sizeof(one)) == (ssize_t)sizeof(one));
	close(p->event_fd);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%d/%s", procs.root, (int)pid, names[i]);
		/* who has the file open reads nothing any more */
		SIM_ENSURE(truncate(path, 0) == 0 && unlink(path) == 0);
	}
	snprintf(path, sizeof(path), "%s/%d", procs.root, (int)pid);
	SIM_ENSURE(rmdir(path) == 0);
}

void simproc_grow(pid_t pid, uint64_t bytes)
{
	char text[64];

	if (find(pid)->ended)
		return;
	snprintf(text, sizeof(text), "%llu %llu 0 1 0 1 0\n", (unsigned long long)bytes / 4096,
		 (unsigned long long)bytes / 4096);
	write_file(pid, "statm", text);
}

void simproc_connects(int fd, pid_t pid)
{
	SIM_ENSURE(fd >= 0 && fd < FDS_MAX);
	procs.at[fd] = pid;
}

void simproc_refuse(unsigned permille)
{
	procs.refuse = permille;
}

/* ---- the doors ------------------------------------------------------------------------------- */

static bool refused(void)
{
	if (!procs.refuse || twister_below(procs.random, 1000) >= procs.refuse)
		return false;
	simtrace_now()->n_faults++;
	return true;
}

int __wrap_open(const char *path, int flags, ...)
{
	char other[PATH_MAX + 64];
	mode_t mode = 0;
	va_list args;

	va_start(args, flags);
	if (flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY)))
		mode = va_arg(args, mode_t);
	va_end(args);
	if (strncmp(path, "/proc/", 6) == 0 && isdigit((unsigned char)path[6])) {
		snprintf(other, sizeof(other), "%s/%s", procs.root, path + 6);
		path = other;
	}
	return __real_open(path, flags, mode);
}

DIR *__wrap_opendir(const char *path)
{
	return __real_opendir(strcmp(path, "/proc") == 0 ? procs.root : path);
}

static int pidfd(pid_t pid)
{
	struct process *p = find(pid);

	if (!p || p->ended) {
		errno = ESRCH;
		return -1;
	}
	return fcntl(p->event_fd, F_DUPFD_CLOEXEC, 0);
}

/* Identifies a process by its pidfd: eventfds are told apart by their number in fdinfo. */
static int event_number(int fd)
{
	char path[64], text[256];
	const char *at;
	ssize_t n;
	int info;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	info = __real_open(path, O_RDONLY | O_CLOEXEC);
	SIM_ENSURE(info >= 0);
	n = read(info, text, sizeof(text) - 1);
	close(info);
	text[n > 0 ? n : 0] = '\0';
	at = strstr(text, "eventfd-id:");
	SIM_ENSURE(at);
	return atoi(at + strlen("eventfd-id:"));
}

static int signal_to(int fd, int number)
{
	int id = event_number(fd);

	for (int i = 0; i < procs.n; i++) {
		if (procs.all[i].ended || event_number(procs.all[i].event_fd) != id)
			continue;
		if (number)
			procs.killed(SIMPROC_FIRST + i, number);
		return 0;
	}
	errno = ESRCH;
	return -1;
}

/* Of the arguments that it was not given some bytes of the stack are passed on (interpose.h). */
__attribute__((no_sanitize("address"))) long __wrap_syscall(long number, ...)
{
	long a[6];
	va_list args;

	va_start(args, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	if (number == SYS_pidfd_open)
		return pidfd((pid_t)a[0]);
	if (number == SYS_pidfd_send_signal)
		return signal_to((int)a[0], (int)a[1]);
	return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
	pid_t pid = fd >= 0 && fd < FDS_MAX ? procs.at[fd] : 0;
	const struct process *p = find(pid);

	if (level != SOL_SOCKET || !p || (name != SO_PEERCRED && name != SO_PEERPIDFD))
		return __real_getsockopt(fd, level, name, value, size);
	if (name == SO_PEERCRED) {
		*(struct ucred *)value = (struct ucred){pid, p->uid, p->uid};
		return 0;
	}
	*(int *)value = pidfd(pid);
	return *(int *)value < 0 ? -1 : 0;
}

ssize_t __wrap_getrandom(void *to, size_t size, unsigned flags)
{
	(void)flags;
	for (size_t i = 0; i < size; i++)
		((unsigned char *)to)[i] = (unsigned char)twister_below(procs.random, 256);
	return (ssize_t)size;
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *m, int flags)
{
	if (refused()) {
		errno = EINTR;
		return -1;
	}
	return __real_recvmsg(fd, m, flags);
}
