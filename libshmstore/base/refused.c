/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refused.c: which system calls are refused.
 *
 * A filter answers before the kernel looks at the arguments. So a call with a descriptor that
 * cannot be one, or of no bytes, tells a filter (EPERM, ENOSYS, or whatever else it was told to
 * say) from the kernel (EBADF, EINVAL, EFAULT). This is asked for when somebody is to be told an
 * error, which is seldom, and never before some call was answered as filters answer: one that ends
 * the process for a call would have ended it for that one.
 */
#include "refused.h"

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

#define NO ((long)-1) /* no descriptor, and no valid flags */

struct call {
	const char *name;
	long number;
	long arguments[6];
	bool spared; /* there is another way */
	const char *without;
};

/* says: what that costs, or what cannot be done. Then the call's arguments. */
#define CALL(call, is_spared, says, ...)                                         \
	{                                                                        \
		.name = #call, .number = SYS_##call, .arguments = {__VA_ARGS__}, \
		.spared = (is_spared), .without = (says)                         \
	}
#define SPARED(call, says, ...) CALL(call, true, says, __VA_ARGS__)
#define NEEDED(call, says, ...) CALL(call, false, says, __VA_ARGS__)

static const struct call calls[] = {
	SPARED(openat2, "directories are opened step by step, by more calls", NO, 0, 0, 0),
	SPARED(io_uring_setup, "plain calls read and write, the daemon waits by epoll", 0),
	SPARED(io_uring_enter, "plain calls read and write, the daemon waits by epoll", NO),
	SPARED(fallocate, "zeros take memory, only whole files give it back", NO),
	NEEDED(madvise, "no store can be opened: forked children would keep its memory", 0),
	NEEDED(linkat, "objects that are files cannot be handed over", NO, 0, NO, 0, NO),
	NEEDED(lseek, "the size and the memory of a file cannot be told", NO),
	NEEDED(renameat2, "nothing can be moved to the disk tier", NO, 0, NO, 0, NO),
	NEEDED(flock, "no store can be opened: the lock is its life", NO),
	NEEDED(fcntl, "deleted objects are not recycled, and directories cannot be read", NO),
	NEEDED(fstatfs, "no partition can be opened: what is free there is not known", NO),
	NEEDED(mmap, "no object can be mapped", 0),
	NEEDED(mremap, "large mappings cannot be moved", 0),
	NEEDED(mprotect, "mappings cannot be made read-only", 0),
	NEEDED(ftruncate, "files cannot get their size", NO),
	NEEDED(fchmod, "no partition can be shared, no object pinned", NO),
	NEEDED(fchown, "root cannot act for users", NO),
	NEEDED(pread64, "nothing can be read", NO),
	NEEDED(preadv, "nothing can be brought back from the disk tier", NO),
	NEEDED(pwrite64, "nothing can be written", NO),
	NEEDED(pwritev, "nothing can be written", NO),
	NEEDED(getdents64, "no directory can be listed", NO),
	NEEDED(readlinkat, "addresses and the disk tier's stubs cannot be read", NO),
	NEEDED(mkdirat, "no store can be made", NO),
	NEEDED(symlinkat, "no address can be set, nothing be moved to the disk tier", 0, NO),
	NEEDED(unlinkat, "nothing can be deleted", NO),
	NEEDED(fsync, "nothing can be moved to the disk tier", NO),
	NEEDED(eventfd2, "no event loop can be woken", 0, NO),
	NEEDED(epoll_create1, "no event loop can wait", NO),
	NEEDED(signalfd4, "the daemon cannot be told to end", NO),
	NEEDED(accept4, "the daemon's page and metrics answer nobody", NO),
	NEEDED(sendmsg, "the daemon's page and metrics answer nobody", NO),
	NEEDED(utimensat, "nothing can be moved to the disk tier", NO),
	NEEDED(recvfrom, "the daemon's page and metrics answer nobody", NO),
#ifdef SYS_renameat /* newer machines' kernels never had it */
	NEEDED(renameat, "no address can be set, no disk tier be made", NO, 0, NO),
#endif
#ifdef SYS_epoll_wait
	NEEDED(epoll_wait, "the daemon's page and metrics answer nobody", NO),
#endif
#ifdef SYS_readlink
	NEEDED(readlink, "no path can be resolved: no partition can be opened", 0),
#endif
	NEEDED(getsockopt, "the daemon does not know who its clients are", NO),
};

#define N_CALLS (sizeof(calls) / sizeof(*calls))

_Static_assert(N_CALLS <= SHMS_REFUSED_MAX, "a list has room for all");
static atomic_bool suspected;

/* The errno that the filter answers with; 0: it lets the call pass. */
static int answer(const struct call *c)
{
	const long *a = c->arguments;
	int saved = errno, error = 0;

	if (syscall(c->number, a[0], a[1], a[2], a[3], a[4], a[5]) < 0)
		error = errno;
	errno = saved;
	return error == ENOSYS || error == EPERM || error == EACCES ? error : 0;
}

bool shms_refused(long call)
{
	for (size_t i = 0; i < N_CALLS; i++) {
		if (calls[i].number == call)
			return answer(&calls[i]) != 0;
	}
	return false;
}

void shms_refused_suspect(void)
{
	atomic_store_explicit(&suspected, true, memory_order_relaxed);
}

size_t shms_refused_list(struct shms_refusal ret[SHMS_REFUSED_MAX])
{
	size_t n = 0;

	for (size_t i = 0; i < N_CALLS; i++) {
		int error = answer(&calls[i]);

		if (error)
			ret[n++] = (struct shms_refusal){calls[i].name, error, calls[i].spared,
							 calls[i].without};
	}
	return n;
}

const char *shms_refused_names(char ret[SHMS_REFUSED_TEXT])
{
	struct shms_refusal refused[SHMS_REFUSED_MAX];
	size_t n_refused, n = 0;

	if (!atomic_load_explicit(&suspected, memory_order_relaxed))
		return NULL;
	n_refused = shms_refused_list(refused);
	for (size_t i = 0; i < n_refused && n < SHMS_REFUSED_TEXT; i++) {
		if (!refused[i].spared)
			n += (size_t)snprintf(ret + n, SHMS_REFUSED_TEXT - n, "%s%s (%s)",
					      n ? ", " : "", refused[i].call,
					      strerror(refused[i].error));
	}
	return n ? ret : NULL;
}

/* ---- openat2, and the same by steps ---------------------------------------------------------- */

/*
 * libc does not wrap openat2(2); systemd answers ENOSYS to it in a unit with RestrictSUIDSGID=
 * (DynamicUser= sets that), filters of containers EPERM.
 *
 * By steps each directory is opened from the one before it, not followed if it is a symlink, and
 * must be on the same mount. Mounts are told by the kernel's number of them, by statx() or else
 * /proc/self/fdinfo; where neither says it, by the device: then a second mount of the same file
 * system passes, which only somebody who may mount can make. That openat2 is refused is remembered:
 * a filter is never taken off.
 */

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
