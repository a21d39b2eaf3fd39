/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bigpages.c: a preload that makes a host of pages of 4 KiB look like one of 64 KiB to a process.
 *
 * Calls that such a kernel refuses are refused: maps at offsets, and changes of maps at addresses,
 * that are within a page. Maps begin at whole pages and end at such. A hole frees the whole pages
 * in it, and zeroes the rest. Files on a tmpfs take memory by whole pages: what was allocated or
 * written by a call is rounded at once; what was written through a map comes by 4 KiB, and the rest
 * of its page is taken when somebody asks what the file takes (settle()). So the file system's own
 * count is right once all files have been looked at. Only the tmpfs of the directory BIG_PAGES_OF
 * is so: a look at all open files of a host, through /proc, meets those of other tests.
 *
 * Left as they are: system calls that do not go through the C library's functions, and all that
 * /proc says of maps and processes.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#define PAGE UINT64_C(65536)
#define OURS __attribute__((visibility("default")))

static uint64_t up(uint64_t size)
{
	return (size + PAGE - 1) & ~(PAGE - 1);
}

static uint64_t down(uint64_t size)
{
	return size & ~(PAGE - 1);
}

static bool within_page(const void *at)
{
	return (uintptr_t)at % PAGE != 0;
}

static int invalid(void)
{
	errno = EINVAL;
	return -1;
}

/* ---- what the host says of itself ------------------------------------------------------------ */

OURS long sysconf(int name)
{
	static long (*real)(int);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "sysconf");
	if (name == _SC_PAGESIZE)
		return (long)PAGE;
	return name == _SC_PHYS_PAGES || name == _SC_AVPHYS_PAGES ? real(name) / 16 : real(name);
}

OURS int getpagesize(void)
{
	return (int)PAGE;
}

OURS unsigned long getauxval(unsigned long type)
{
	static unsigned long (*real)(unsigned long);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "getauxval");
	return type == AT_PAGESZ ? PAGE : real(type);
}

/* ---- maps ------------------------------------------------------------------------------------ */

static void *real_mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset)
{
	return (void *)syscall(SYS_mmap, at, size, prot, flags, fd, offset);
}

/* Takes addresses for size bytes that begin and end with a page. */
static void *reserve(size_t size)
{
	char *begin = real_mmap(NULL, size + PAGE, PROT_NONE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
	     *at;

	if (begin == MAP_FAILED)
		return MAP_FAILED;
	at = begin + (PAGE - (uintptr_t)begin % PAGE) % PAGE;
	if (at > begin)
		syscall(SYS_munmap, begin, at - begin);
	if (at + size < begin + size + PAGE)
		syscall(SYS_munmap, at + size, begin + PAGE - at);
	return at;
}

OURS void *mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset)
{
	void *map;
	int error;

	if ((uint64_t)offset % PAGE ||
	    ((flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) && within_page(at)) || !size) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	size = up(size);
	if (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE))
		return real_mmap(at, size, prot, flags, fd, offset);
	at = reserve(size);
	if (at == MAP_FAILED)
		return at;
	map = real_mmap(at, size, prot, flags | MAP_FIXED, fd, offset);
	if (map == MAP_FAILED) {
		error = errno;
		syscall(SYS_munmap, at, size);
		errno = error;
	}
	return map;
}

OURS void *mmap64(void *at, size_t size, int prot, int flags, int fd, off_t offset)
{
	return mmap(at, size, prot, flags, fd, offset);
}

OURS int munmap(void *at, size_t size)
{
	return within_page(at) ? invalid() : (int)syscall(SYS_munmap, at, up(size));
}

OURS int mprotect(void *at, size_t size, int prot)
{
	return within_page(at) ? invalid() : (int)syscall(SYS_mprotect, at, up(size), prot);
}

OURS int madvise(void *at, size_t size, int advice)
{
	return within_page(at) ? invalid() : (int)syscall(SYS_madvise, at, up(size), advice);
}

OURS int msync(void *at, size_t size, int flags)
{
	return within_page(at) ? invalid() : (int)syscall(SYS_msync, at, up(size), flags);
}

OURS void *mremap(void *at, size_t from, size_t to, int flags, ...)
{
	void *place;
	va_list list;

	if (within_page(at)) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	if (flags & MREMAP_FIXED) {
		va_start(list, flags);
		place = va_arg(list, void *);
		va_end(list);
	} else if (up(to) <= up(from) || !(flags & MREMAP_MAYMOVE)) {
		return (void *)syscall(SYS_mremap, at, up(from), up(to), flags);
	} else {
		place = reserve(up(to));
	}
	if (place == MAP_FAILED || within_page(place)) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	return (void *)syscall(SYS_mremap, at, up(from), up(to), flags | MREMAP_FIXED, place);
}

/* ---- memory of files ------------------------------------------------------------------------- */

static int real_fstat(int fd, struct stat *ret)
{
	return (int)syscall(SYS_newfstatat, fd, "", ret, AT_EMPTY_PATH);
}

static bool on_our_tmpfs(int fd)
{
	const char *ours = getenv("BIG_PAGES_OF");
	struct stat st, place;
	struct statfs fs;

	return ours && fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC &&
	       real_fstat(fd, &st) == 0 &&
	       syscall(SYS_newfstatat, AT_FDCWD, ours, &place, 0) == 0 && st.st_dev == place.st_dev;
}

/* To SEEK_HOLE memory that was never touched is a hole. */
static void touch(int fd, uint64_t from, uint64_t to)
{
	volatile const char *map =
		real_mmap(NULL, to - from, PROT_READ, MAP_SHARED, fd, (off_t)from);

	if (map == MAP_FAILED)
		return;
	for (uint64_t at = 0; at < to - from; at += 4096)
		(void)map[at];
	syscall(SYS_munmap, map, to - from);
}

/* For writing, as a descriptor of its own where fd is not. -1: none, or somebody has a lease,
 * which opening would break. */
static int writable(int fd)
{
	char path[32];
	int flags = fcntl(fd, F_GETFL);

	if (!(flags & O_PATH) && (flags & O_ACCMODE) == O_RDWR)
		return fd;
	if (!(flags & O_PATH) && fcntl(fd, F_GETLEASE) != F_UNLCK)
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
}

/* Takes the rest of every page of which a part has memory. */
static void settle(int fd)
{
	struct stat st;
	int file, error = errno;
	off_t at = 0, was;

	if (real_fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || !st.st_blocks || !on_our_tmpfs(fd))
		return;
	file = writable(fd);
	was = lseek(file, 0, SEEK_CUR);
	while (file >= 0 && (at = lseek(file, at, SEEK_DATA)) >= 0) {
		uint64_t page = down((uint64_t)at);
		uint64_t end =
			page + PAGE < (uint64_t)st.st_size ? page + PAGE : (uint64_t)st.st_size;

		if ((uint64_t)at > page || (uint64_t)lseek(file, at, SEEK_HOLE) < end ||
		    end < page + PAGE) {
			if (syscall(SYS_fallocate, file, FALLOC_FL_KEEP_SIZE, page, PAGE) < 0)
				break;
			touch(file, page, end);
		}
		at = (off_t)(page + PAGE);
	}
	lseek(file, was, SEEK_SET);
	if (file >= 0 && file != fd)
		syscall(SYS_close, file);
	errno = error;
}

static void zero(int fd, uint64_t from, uint64_t to)
{
	static const char zeros[PAGE];
	struct stat st;

	if (real_fstat(fd, &st) == 0 && to > (uint64_t)st.st_size)
		to = (uint64_t)st.st_size;
	if (from < to && (uint64_t)lseek(fd, (off_t)from, SEEK_DATA) < to)
		syscall(SYS_pwrite64, fd, zeros, to - from, from);
}

OURS int fallocate(int fd, int mode, off_t offset, off_t size)
{
	uint64_t from = (uint64_t)offset, to = from + (uint64_t)size;

	if (size <= 0 || !on_our_tmpfs(fd))
		return (int)syscall(SYS_fallocate, fd, mode, offset, size);
	if (mode & FALLOC_FL_PUNCH_HOLE) {
		uint64_t first = up(from), end = down(to);

		if (first >= end) {
			zero(fd, from, to < first ? to : first);
			zero(fd, first, to);
			return 0;
		}
		zero(fd, from, first);
		zero(fd, end, to);
		return (int)syscall(SYS_fallocate, fd, mode, first, end - first);
	}
	if (syscall(SYS_fallocate, fd, FALLOC_FL_KEEP_SIZE, down(from), up(to) - down(from)) < 0)
		return -1;
	return (int)syscall(SYS_fallocate, fd, mode, offset, size);
}

OURS int fallocate64(int fd, int mode, off_t offset, off_t size)
{
	return fallocate(fd, mode, offset, size);
}

static void settle_at(int dirfd, const char *path, int flags)
{
	int fd = (int)syscall(SYS_openat, dirfd, path,
			      O_PATH | O_CLOEXEC | (flags & AT_SYMLINK_NOFOLLOW ? O_NOFOLLOW : 0));
	struct stat st;

	if (fd >= 0 && real_fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		settle(fd);
	if (fd >= 0)
		syscall(SYS_close, fd);
}

/* Bytes that were written have whole pages at once, so that who asks the
 * file system sees no less. */
static ssize_t written(int fd, ssize_t n)
{
	if (n > 0)
		settle(fd);
	return n;
}

OURS ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
	return written(fd, syscall(SYS_pwrite64, fd, bytes, size, offset));
}

OURS ssize_t pwrite64(int fd, const void *bytes, size_t size, off_t offset)
{
	return pwrite(fd, bytes, size, offset);
}

OURS ssize_t pwritev(int fd, const struct iovec *pieces, int n, off_t offset)
{
	return written(fd, syscall(SYS_pwritev, fd, pieces, n, offset, 0));
}

OURS ssize_t write(int fd, const void *bytes, size_t size)
{
	return written(fd, syscall(SYS_write, fd, bytes, size));
}

OURS int fstat(int fd, struct stat *ret)
{
	settle(fd);
	return real_fstat(fd, ret);
}

OURS int fstatat(int dirfd, const char *path, struct stat *ret, int flags)
{
	if ((flags & AT_EMPTY_PATH) && !*path)
		settle(dirfd);
	else
		settle_at(dirfd, path, flags);
	return (int)syscall(SYS_newfstatat, dirfd, path, ret, flags);
}

OURS int stat(const char *path, struct stat *ret)
{
	return fstatat(AT_FDCWD, path, ret, 0);
}

OURS int lstat(const char *path, struct stat *ret)
{
	return fstatat(AT_FDCWD, path, ret, AT_SYMLINK_NOFOLLOW);
}

OURS int statx(int dirfd, const char *path, int flags, unsigned mask, struct statx *ret)
{
	if ((flags & AT_EMPTY_PATH) && !*path)
		settle(dirfd);
	else
		settle_at(dirfd, path, flags);
	return (int)syscall(SYS_statx, dirfd, path, flags, mask, ret);
}
