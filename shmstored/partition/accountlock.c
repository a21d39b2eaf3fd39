/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accountlock.c: one daemon per partition, and stores that know that it lives: a flock on the partition's marker.
 *
 * In a partition that several users share every one of them can open the marker, and so hold its lock. That must not keep the daemon
 * away: a root daemon asks /proc/locks who it is, and where that is a process of an ordinary user, says so and watches without the lock
 * until it is free. Meanwhile no store that is alone can grant itself anything, since it cannot have the lock either. The
 * user is read from the process's status: the owner of its /proc directory is root's as soon as it makes itself undumpable.
 * In a partition of one user the holder is a daemon of that user, or a store that is alone and takes it for a moment.
 */
#include "accountlock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "account.h"
#include "log.h"

#define MARKER ".shmstore"
#define TRIES  200u     /* a store that is alone takes the lock for a moment */
#define NAP_NS 5000000l /* between tries */

static int user_of(pid_t pid, uid_t *ret)
{
	char path[32], line[256];
	unsigned uid;
	int r = -ENOENT;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	if (!f)
		return -ENOENT;
	while (r < 0 && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "Uid: %u", &uid) == 1) {
			*ret = uid;
			r = 0;
		}
	}
	fclose(f);
	return r;
}

int accountlock_holder(const struct stat *file, pid_t *ret_pid, uid_t *ret_uid)
{
	unsigned major_number, minor_number;
	char line[256];
	uint64_t inode;
	int pid, r = -ENOENT;
	FILE *f = fopen("/proc/locks", "re");

	if (!f)
		return -ENOENT;
	/* "1: FLOCK  ADVISORY  WRITE 4711 00:2d:5 0 EOF"; those who wait for one have "->" behind the number. */
	while (r < 0 && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*d: FLOCK %*s %*s %d %x:%x:%" SCNu64, &pid, &major_number, &minor_number, &inode) !=
		    4)
			continue;
		if (inode == file->st_ino && makedev(major_number, minor_number) == file->st_dev && pid > 0 &&
		    user_of(pid, ret_uid) == 0) {
			*ret_pid = pid;
			r = 0;
		}
	}
	fclose(f);
	return r;
}

/* Is the lock held by somebody who is no daemon that this partition's users should obey? */
static bool held_by_a_user(const struct account *a, int fd)
{
	struct stat root, marker;
	uid_t uid;
	pid_t pid;

	if (geteuid() != 0 || fstat(a->fd, &root) < 0 || fstat(fd, &marker) < 0 || (root.st_mode & 01777) != 01777 ||
	    accountlock_holder(&marker, &pid, &uid) < 0 || uid == 0)
		return false;
	log_say(LOG_WARNING, LOG_FIELDS(.object = a->path),
		"process %d of user %u holds the lock of the partition's marker, and is no daemon: watching without "
		"it; "
		"should we end meanwhile, stores that need more credit get none",
		pid, (unsigned)uid);
	return true;
}

static int open_marker(const struct account *a)
{
	int fd = openat(a->fd, MARKER, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

	return fd < 0 ? -errno : fd;
}

int accountlock_take(struct account *a)
{
	int r = 0, fd = open_marker(a);

	if (fd < 0)
		return fd;
	for (unsigned i = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
		r = -errno;
		if (r != -EWOULDBLOCK || i == TRIES)
			break;
		nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
		r = 0;
	}
	if (r == 0) {
		a->lock_fd = fd;
		return 0;
	}
	if (r == -EWOULDBLOCK)
		r = held_by_a_user(a, fd) ? 0 : -EBUSY;
	close(fd);
	if (r == -EBUSY)
		log_say(LOG_ERR, LOG_FIELDS(.object = a->path),
			"another daemon watches this partition: its marker " MARKER " is locked");
	return r;
}

void accountlock_tick(struct account *a)
{
	int fd = a->lock_fd < 0 ? open_marker(a) : -1;

	if (fd < 0)
		return;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		close(fd);
		return;
	}
	a->lock_fd = fd;
	log_say(LOG_NOTICE, LOG_FIELDS(.object = a->path), "the lock of the partition's marker is free, and ours now");
}
