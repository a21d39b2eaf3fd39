/* SPDX-License-Identifier: Apache-2.0 */
/*
 * openbeneath.c: openat2(2), which libc does not wrap, and the same by steps where it is
 * refused: systemd answers ENOSYS to it in a unit with RestrictSUIDSGID= (DynamicUser= sets
 * that), filters of containers EPERM.
 *
 * By steps each directory is opened from the one before it, not followed if it is a symlink, and
 * must be on the same mount. Mounts are told by the kernel's number of them, by statx() or else
 * /proc/self/fdinfo; where neither says it, by the device: then a second mount of the same file
 * system passes, which only somebody who may mount can make. That openat2 is refused is remembered:
 * a filter is never taken off.
 */
#include "openbeneath.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "refused.h"

#define MOUNT_LINE "mnt_id:"

struct mount {
	uint64_t id; /* 0 = not known */
	dev_t device;
};

/* By what the kernel says of a descriptor as text. 0: it does not. */
static uint64_t mount_by_text(int fd)
{
	char text[512], path[48];
	const char *line;
	unsigned long long id;
	ssize_t n;
	int info;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	info = open(path, O_RDONLY | O_CLOEXEC);
	n = info < 0 ? -1 : read(info, text, sizeof(text) - 1);
	if (info >= 0)
		close(info);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	line = strstr(text, MOUNT_LINE);
	return line && sscanf(line + sizeof(MOUNT_LINE) - 1, "%llu", &id) == 1 ? id : 0;
}

static int mount_of(int fd, struct mount *ret)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	*ret = (struct mount){.device = st.st_dev};
#ifdef STATX_MNT_ID /* musl's header is older */
	struct statx x;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &x) == 0 && x.stx_mask & STATX_MNT_ID)
		ret->id = x.stx_mnt_id;
#endif
	if (!ret->id)
		ret->id = mount_by_text(fd);
	return 0;
}

/* Opens the one name, which has no slash, on that mount. */
static int step(int dir_fd, const char *name, int flags, const struct mount *on)
{
	struct mount m;
	struct stat st;
	int r, fd = openat(dir_fd, name, flags | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0) {
		r = -errno;
		/* openat2 tells a symlink from what is no directory. */
		if (r == -ENOTDIR && fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISLNK(st.st_mode))
			r = -ELOOP;
		return r;
	}
	r = mount_of(fd, &m);
	if (r == 0 && (m.id != on->id || m.device != on->device))
		r = -EXDEV;
	/* O_PATH opens a symlink itself; with O_NOFOLLOW that was asked for. */
	if (r == 0 && (flags & (O_PATH | O_NOFOLLOW)) == O_PATH)
		r = fstat(fd, &st) < 0 ? -errno : S_ISLNK(st.st_mode) ? -ELOOP : 0;
	if (r == 0)
		return fd;
	close(fd);
	return r;
}

static int by_steps(int dir_fd, const char *path, int flags)
{
	char name[NAME_MAX + 1];
	struct mount on;
	int fd = dir_fd, next, r = mount_of(dir_fd, &on);

	if (r < 0)
		return r;
	if (path[0] == '/')
		return -EXDEV;
	for (const char *at = path, *end;; at = end + strspn(end, "/")) {
		end = at + strcspn(at, "/");
		if ((size_t)(end - at) >= sizeof(name) || end == at)
			r = end == at ? -ENOENT : -ENAMETOOLONG;
		memcpy(name, at, r < 0 ? 0 : (size_t)(end - at));
		name[r < 0 ? 0 : end - at] = '\0';
		if (strcmp(name, "..") == 0)
			r = -EXDEV;
		next = r < 0 ? r : step(fd, name, end[strspn(end, "/")] ? O_PATH : flags, &on);
		if (fd != dir_fd)
			close(fd);
		if (next < 0 || !end[strspn(end, "/")])
			return next;
		fd = next;
	}
}

/* Of another user's symlink in a directory that all may write to openat2 says EACCES, where
 * fs.protected_symlinks is set. */
static bool is_symlink(int dir_fd, const char *path, struct open_how *how)
{
	struct stat st;
	int fd;
	bool is;

	how->flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
	fd = (int)syscall(SYS_openat2, dir_fd, path, how, sizeof(*how));
	is = fd >= 0 && fstat(fd, &st) == 0 && S_ISLNK(st.st_mode);
	if (fd >= 0)
		close(fd);
	return is;
}

int shms_beneath_open(int dir_fd, const char *path, int flags)
{
	static atomic_bool refused;
	struct open_how how = {
		.flags = (uint64_t)(unsigned)flags | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS |
			   RESOLVE_NO_XDEV,
	};
	int fd, r;

	if (!atomic_load_explicit(&refused, memory_order_relaxed)) {
		fd = (int)syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));
		if (fd >= 0)
			return fd;
		r = -errno;
		if ((r != -ENOSYS && r != -EPERM && r != -EACCES) || !shms_refused(SYS_openat2))
			return r == -EACCES && is_symlink(dir_fd, path, &how) ? -ELOOP : r;
		atomic_store_explicit(&refused, true, memory_order_relaxed);
	}
	return by_steps(dir_fd, path, flags);
}
