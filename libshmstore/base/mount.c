/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount.c: /proc/self/mountinfo, read afresh each time (it changes, and it is asked for rarely). A
 * later line covers an earlier one of the same point.
 */
#include "mount.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cleanup.h"
#include "mountline.h"
#include "sys.h"

#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1
#endif

static void cleanup_file(FILE **f)
{
	if (*f)
		fclose(*f);
}

static int copy(char *to, size_t size, const char *from, size_t n)
{
	if (n >= size)
		return -EINVAL;
	memcpy(to, from, n);
	to[n] = '\0';
	return 0;
}

/* The value of huge= in a tmpfs's options, which leave it out where it is never. */
static int copy_huge(const struct shms_mountline *m, char *to, size_t size)
{
	const char *huge;
	size_t n;

	if (strcmp(m->type, "tmpfs") != 0)
		return copy(to, size, "", 0);
	huge = shms_mountline_option(m->super, "huge", &n);
	return huge ? copy(to, size, huge, n) : copy(to, size, "never", 5);
}

static FILE *open_mountinfo(void)
{
	return fopen("/proc/self/mountinfo", "re");
}

int shms_mount_find(const char *canonical_path, dev_t device, char *ret_mount, size_t mount_size,
		    char *ret_huge, size_t huge_size)
{
	shms_cleanup(cleanup_file) FILE *f = open_mountinfo();
	_free_ char *line = NULL, *best = NULL;
	size_t line_size = 0, best_length = 0;
	bool best_device = false;
	struct shms_mountline m;

	if (!f)
		return shms_error(errno);
	while (getline(&line, &line_size, f) > 0) {
		_free_ char *whole = strdup(line);
		if (!whole)
			return -ENOMEM;
		if (!shms_mountline_parse(line, &m) ||
		    !shms_mountline_covers(m.point, canonical_path))
			continue;
		bool same = m.device == device;
		if (best &&
		    (same < best_device || (same == best_device && strlen(m.point) < best_length)))
			continue;
		best_device = same;
		best_length = strlen(m.point);
		free(best);
		best = whole;
		whole = NULL;
	}
	if (!best || !shms_mountline_parse(best, &m))
		return -ENOENT;

	/* Both or none: what does not fit must not leave half an answer. */
	if (strlen(m.point) >= mount_size)
		return -EINVAL;
	int r = copy_huge(&m, ret_huge, huge_size);
	return r < 0 ? r : copy(ret_mount, mount_size, m.point, strlen(m.point));
}

/* The directory at point if it is on device: another mount may lie over it. */
static int open_point(const char *point, dev_t device)
{
	_fd_ int fd = open(point, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return shms_error(errno);
	if (st.st_dev != device)
		return -ENOENT;

	/* The C library has open_tree() from glibc 2.36 on. */
	int clone =
		(int)syscall(SYS_open_tree, fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | O_CLOEXEC);
	/* not privileged, or a kernel or sandbox without the call: what
	 * other mounts hide stays hidden */
	if (clone < 0)
		return shms_take_fd(&fd);
	/* The clone is an O_PATH descriptor; a readable one of the same directory keeps
	 * the detached mount alive. */
	int readable = openat(clone, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	shms_close_fd(clone);
	return readable >= 0 ? readable : shms_take_fd(&fd);
}

int shms_mount_open(dev_t device, const char *mount, bool *ret_whole)
{
	shms_cleanup(cleanup_file) FILE *f = open_mountinfo();
	_free_ char *line = NULL;
	size_t line_size = 0;
	struct shms_mountline m;

	while (f && getline(&line, &line_size, f) > 0) {
		if (!shms_mountline_parse(line, &m) || m.device != device ||
		    strcmp(m.root, "/") != 0)
			continue;
		int fd = open_point(m.point, device);
		if (fd >= 0) {
			*ret_whole = true;
			return fd;
		}
	}
	*ret_whole = false;
	return open_point(mount, device);
}

/* ---- other processes ------------------------------------------------------------------------- */

/* The inode of the first pid namespace (the kernel's PROC_PID_INIT_INO): who is
 * in it sees every process. */
#define FIRST_PID_NAMESPACE 0xEFFFFFFCu
#define NAMESPACES_MAX      256u /* that are told apart; with more some are asked twice */

struct namespaces {
	ino_t seen[NAMESPACES_MAX];
	size_t n;
};

static bool seen(const struct namespaces *s, ino_t ino)
{
	for (size_t i = 0; i < s->n; i++) {
		if (s->seen[i] == ino)
			return true;
	}
	return false;
}

/* Has the process that procfd/name is of the device mounted? 1, 0, -errno; *io_whole is cleared
 * where it cannot be asked. */
static int mounted_by(int procfd, const char *pid, dev_t device, struct namespaces *s,
		      bool *io_whole)
{
	char path[NAME_MAX + 16];
	_free_ char *line = NULL;
	size_t line_size = 0;
	struct shms_mountline m;
	struct stat st;
	bool told;
	int fd;

	/* Most processes share one namespace: it is asked once. */
	snprintf(path, sizeof(path), "%s/ns/mnt", pid);
	told = fstatat(procfd, path, &st, 0) == 0;
	if (told && seen(s, st.st_ino))
		return 0;
	snprintf(path, sizeof(path), "%s/mountinfo", pid);
	fd = openat(procfd, path, O_RDONLY | O_CLOEXEC);
	shms_cleanup(cleanup_file) FILE *f = fd >= 0 ? fdopen(fd, "re") : NULL;
	if (!f) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
			return shms_error(errno);
		/* ended since */
		*io_whole = *io_whole && (errno == ENOENT || errno == ESRCH || errno == EINVAL);
		shms_close_fd(fd);
		return 0;
	}
	while (getline(&line, &line_size, f) > 0) {
		if (shms_mountline_parse(line, &m) && m.device == device)
			return 1;
	}
	if (told && s->n < NAMESPACES_MAX)
		s->seen[s->n++] = st.st_ino;
	return 0;
}

bool shms_sees_all_pids(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) == 0 && st.st_ino == FIRST_PID_NAMESPACE;
}

int shms_mount_anywhere(dev_t device, bool *ret_whole)
{
	struct namespaces *s = calloc(1, sizeof(*s));
	_names_ struct shms_names d = shms_names(AT_FDCWD, "/proc");
	bool whole = shms_sees_all_pids() && geteuid() == 0;
	int r = s ? 0 : -ENOMEM;

	*ret_whole = false;
	while (s && r == 0 && shms_names_next(&d)) {
		if (d.name[0] >= '1' && d.name[0] <= '9')
			r = mounted_by(d.fd, d.name, device, s, &whole);
	}
	*ret_whole = whole && d.error == 0;
	free(s);
	return r;
}
