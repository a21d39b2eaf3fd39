/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sys.c: thin wrappers of kernel calls. No state but what is probed once and never changes (boot
 * id, whether linkat takes AT_EMPTY_PATH from us). Nothing here knows what an object is.
 */
#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "detail.h"
#include "hexdigits.h"
#include "refused.h"

#define ALLOCATE_LEAST 4096u
#define AT_ONCE        5u
#define ZERO_PAGES     256u
#define LEASE_NS       1000000000ull
#define LINK_TRIES     8

off_t shms_seek(int fd, uint64_t offset, int whence)
{
	off_t at = lseek(fd, (off_t)offset, whence);

	return at >= 0 ? at : errno == EPERM ? -ENOSYS : -errno;
}

/* The closed list, each as itself, and the errors that are told as one of it. */
static const uint8_t told_as[] = {
	[EINVAL] = EINVAL,       [ENOENT] = ENOENT,
	[EEXIST] = EEXIST,       [EBUSY] = EBUSY,
	[ENOSPC] = ENOSPC,       [EDQUOT] = EDQUOT,
	[EBADMSG] = EBADMSG,     [EPERM] = EPERM,
	[ESTALE] = ESTALE,       [EXDEV] = EXDEV,
	[EMFILE] = EMFILE,       [ENOMEM] = ENOMEM,
	[ENOTSUP] = ENOTSUP,     [EIO] = EIO,
	[ETIMEDOUT] = ETIMEDOUT, [EFBIG] = EFBIG,
	[ECANCELED] = ECANCELED, [EACCES] = EPERM,
	[EROFS] = EPERM,         [ENFILE] = EMFILE,
	[ENOTDIR] = ENOENT,      [ELOOP] = EBADMSG,
	[EISDIR] = EBADMSG,      [ENXIO] = EBADMSG,
	[ENOTEMPTY] = EEXIST,    [EMLINK] = ENOSPC,
	[ENOSYS] = ENOTSUP,      [ENAMETOOLONG] = EINVAL,
	[EFAULT] = EINVAL,
};

int shms_error(int error)
{
	if (error < 0)
		error = -error;
	if (error == ENOSYS || error == EPERM)
		shms_refused_suspect();
	if (error == 0)
		return 0;
	return (size_t)error < sizeof(told_as) && told_as[error] ? -told_as[error] : -EIO;
}

int shms_open_beneath(int dirfd, const char *path, int flags)
{
	struct shms_tries t = {0};
	int fd;

	do {
		fd = shms_beneath_open(dirfd, path, flags);
		errno = fd < 0 ? -fd : errno;
	} while (fd < 0 && shms_open_again(&t));
	return fd < 0 ? -errno : fd;
}

bool shms_open_again(struct shms_tries *t)
{
	uint64_t now;

	/* EAGAIN: a rename raced with the walk, or the owner is just testing whether it may recycle
	 * the file (O_NONBLOCK does not wait for the end of its lease). Both pass; a process
	 * stopped in the middle of it is waited for a second. */
	if (errno == EINTR)
		return true;
	if (errno != EAGAIN)
		return false;
	if (t->n++ < AT_ONCE)
		return true;
	now = shms_now_mono_ns();
	t->until_ns = t->until_ns ? t->until_ns : now + LEASE_NS;
	if (now >= t->until_ns) {
		errno = ETIMEDOUT;
		return false;
	}
	nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
	return true;
}

int shms_open_object(int dirfd, const char *name)
{
	struct shms_tries t = {0};
	int fd;

	do
		fd = shms_open_file(dirfd, name, O_RDONLY);
	while (fd < 0 && shms_open_again(&t));
	return fd < 0 ? -errno : fd;
}

int shms_open_dir(int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd >= 0 ? fd : -errno;
}

mode_t shms_mode_in(int dirfd, mode_t mode)
{
	struct stat st;

	if (fstat(dirfd, &st) < 0 ||
	    (st.st_mode & (S_ISGID | S_IRGRP | S_IRWXO)) != (S_ISGID | S_IRGRP))
		return mode;
	return mode | (mode >> 3 & 050) | (mode & S_IXUSR ? S_ISGID : 0);
}

int shms_make_dir(int dirfd, const char *name)
{
	mode_t mode = shms_mode_in(dirfd, 0700);

	if (mkdirat(dirfd, name, 0700) < 0)
		return -errno;
	if (mode == 0700)
		return 0;
	_fd_ int fd = shms_open_dir(dirfd, name);
	return fd < 0 ? fd : fchmod(fd, mode) < 0 ? -errno : 0;
}

struct shms_names shms_names_of(int consume_fd)
{
	struct shms_names d = {.fd = consume_fd, .error = consume_fd < 0 ? consume_fd : 0};

	d.dir = consume_fd < 0 ? NULL : fdopendir(consume_fd);
	if (consume_fd >= 0 && !d.dir) {
		/* of its fstat(), too: /proc/PID/fd of a process that has ended since is ENOENT */
		d.error = shms_error(errno);
		shms_close_fd(consume_fd);
	}
	return d;
}

struct shms_names shms_names(int dirfd, const char *name)
{
	return shms_names_of(shms_open_dir(dirfd, name));
}

struct shms_names shms_names_beneath(int dirfd, const char *name)
{
	struct shms_names d = shms_names_of(shms_open_beneath(dirfd, name, O_RDONLY | O_DIRECTORY));

	switch (-d.error) {
	case ENOENT:
	case ENOTDIR:
	case ELOOP:
	case EACCES:
	case EXDEV:
		d.error = 0;
		break;
	default:
		d.error = shms_error(d.error);
	}
	return d;
}

bool shms_names_next(struct shms_names *d)
{
	struct dirent *e;

	if (!d->dir || d->error)
		return false;
	do {
		errno = 0;
		e = readdir(d->dir);
	} while (e && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0));
	if (!e) {
		d->error = shms_error(errno);
		return false;
	}
	d->name = e->d_name;
	d->ino = e->d_ino;
	d->type = e->d_type;
	return true;
}

void shms_names_end(struct shms_names *d)
{
	if (d->dir)
		closedir(d->dir);
	d->dir = NULL;
}

int shms_link_fd(int fd, int dirfd, const char *name)
{
	/* AT_EMPTY_PATH needs CAP_DAC_READ_SEARCH before Linux 6.10: ENOENT says that it
	 * is refused. Remember only the refusal, so that a process that gains nothing
	 * does not try twice each time. */
	static atomic_bool refused;
	char path[32];
	int r = shms_unnamed_move(fd, dirfd, name);

	if (r != 0)
		return r < 0 ? r : 0;
	if (!atomic_load_explicit(&refused, memory_order_relaxed)) {
		if (linkat(fd, "", dirfd, name, AT_EMPTY_PATH) == 0)
			return 0;
		if (errno != ENOENT && errno != EPERM && errno != EINVAL)
			return -errno;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (linkat(AT_FDCWD, path, dirfd, name, AT_SYMLINK_FOLLOW) < 0) {
		r = -errno;
		/* If it could be made there, it may be linked, but for a filter or AppArmor. */
		if (r == -EACCES || r == -EPERM || r == -ENOSYS) {
			shms_unnamed_not_linked();
			shms_detail(
				shms_error(r), NULL,
				"linkat: %s: a new file cannot be linked; the next one is renamed",
				strerror(-r));
		}
		return r;
	}
	atomic_store_explicit(&refused, true, memory_order_relaxed);
	return 0;
}

#ifndef RENAME_NOREPLACE /* musl has neither; as glibc's where the call is not to be had */
#define RENAME_NOREPLACE (1u << 0)
#define RENAME_EXCHANGE  (1u << 1)
static int renameat2(int olddirfd, const char *oldname, int newdirfd, const char *newname,
		     unsigned how)
{
	int r = (int)syscall(SYS_renameat2, olddirfd, oldname, newdirfd, newname, how);

	if (r < 0 && errno == ENOSYS)
		errno = EINVAL;
	return r;
}
#endif

int shms_link_name(int olddirfd, const char *oldname, int newdirfd, const char *newname)
{
	int tries = LINK_TRIES, r;

	do
		r = linkat(olddirfd, oldname, newdirfd, newname, 0) < 0 ? -errno : 0;
	while (r == -ENOENT && --tries && shms_lookup(olddirfd, oldname) == 0);
	return r;
}

int shms_rename_noreplace(int olddirfd, const char *oldname, int newdirfd, const char *newname)
{
	int r;

	if (renameat2(olddirfd, oldname, newdirfd, newname, RENAME_NOREPLACE) == 0)
		return 0;
	/* libc says EINVAL where the kernel, or a filter, says ENOSYS; so do file
	 * systems that cannot do it. */
	if (errno != EINVAL && (errno != EPERM || !shms_refused(SYS_renameat2)))
		return -errno;
	if (linkat(olddirfd, oldname, newdirfd, newname, 0) < 0)
		return -errno;
	if (unlinkat(olddirfd, oldname, 0) == 0)
		return 0;
	/* Of several who move it the one that removed the old name has it. */
	r = -errno;
	unlinkat(newdirfd, newname, 0);
	return r;
}

int shms_exchange(int dirfd, const char *name, int other_dirfd, const char *other_name)
{
	if (renameat2(dirfd, name, other_dirfd, other_name, RENAME_EXCHANGE) == 0)
		return 0;
	if ((errno == EINVAL || errno == EPERM) && shms_refused(SYS_renameat2)) {
		shms_refused_suspect();
		return -ENOSYS;
	}
	return -errno;
}

uint64_t shms_file_size_most(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY
		       ? UINT64_MAX
		       : limit.rlim_cur;
}

int shms_file_size_allowed(uint64_t end)
{
	uint64_t most = shms_file_size_most();

	if (end <= most)
		return 0;
	return shms_detail(-EFBIG, NULL,
			   "a file of %" PRIu64
			   " bytes is larger than this process may make files: raise ulimit -f "
			   "(RLIMIT_FSIZE), which is %" PRIu64 " bytes",
			   end, most);
}

int shms_truncate(int fd, uint64_t size)
{
	int r = shms_file_size_allowed(size);

	return r < 0 ? r : ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
}

int shms_pwritev_all(int fd, struct iovec *iov, size_t n_iov, uint64_t offset)
{
	uint64_t end = offset;
	size_t i = 0;

	for (size_t k = 0; k < n_iov; k++)
		end += iov[k].iov_len;
	while (i < n_iov) {
		int n = n_iov - i > IOV_MAX ? IOV_MAX : (int)(n_iov - i);
		/* The kernel cuts a write short at the limit; one that
		 * begins there ends the process. */
		int r = offset ? shms_file_size_allowed(end) : 0;
		ssize_t done;
		size_t left;

		if (r < 0)
			return r;
		done = pwritev(fd, iov + i, n, (off_t)offset);
		if (done < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		left = (size_t)done;
		offset += left;
		while (i < n_iov && left >= iov[i].iov_len)
			left -= iov[i++].iov_len;
		if (left) {
			iov[i].iov_base = (char *)iov[i].iov_base + left;
			iov[i].iov_len -= left;
		} else if (done == 0 && i < n_iov) {
			return -EIO;
		}
	}
	return 0;
}

int shms_write_at(int fd, const void *bytes, uint64_t size, uint64_t offset)
{
	struct iovec iov = {.iov_len = size};

	memcpy(&iov.iov_base, &bytes, sizeof(bytes)); /* only read */
	return shms_pwritev_all(fd, &iov, 1, offset);
}

/* Takes a new file's memory where fallocate() is refused: by zeros, which is more work. */
static int write_zeros(int fd, uint64_t size)
{
	static const char page[4096];
	uint64_t done = 0, begin;
	char *zeros;
	int r = 0;

	memcpy(&zeros, &(const char *){page}, sizeof(zeros)); /* pwritev only reads it */
	while (r == 0 && done < size) {
		struct iovec iov[ZERO_PAGES];
		size_t n = 0;

		for (begin = done; n < ZERO_PAGES && done < size; done += iov[n++].iov_len)
			iov[n] = (struct iovec){zeros, size - done < sizeof(page) ? size - done
										  : sizeof(page)};
		r = shms_pwritev_all(fd, iov, n, begin);
	}
	return r;
}

int shms_allocate(int fd, uint64_t size)
{
	uint64_t done = 0, piece = size;
	int r = shms_file_size_allowed(size);

	if (r < 0)
		return r;
	/* Before Linux 6.11 a signal ends the call and undoes it: under a timer a large file would
	 * never be done. An interrupted call is tried again in halves; a page always succeeds. */
	while (done < size) {
		if (piece > size - done)
			piece = size - done;
		if (fallocate(fd, 0, (off_t)done, (off_t)piece) == 0)
			done += piece;
		else if (errno == ENOSYS || errno == EOPNOTSUPP ||
			 (errno == EPERM && shms_refused(SYS_fallocate)))
			return write_zeros(fd, size);
		else if (errno != EINTR)
			return -errno;
		else if (piece > ALLOCATE_LEAST)
			piece /= 2;
	}
	return 0;
}

int shms_lock_bytes(int fd, short type, uint64_t from, uint64_t n)
{
	struct flock lock = {
		.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)from, .l_len = (off_t)n};

	while (fcntl(fd, F_OFD_SETLK, &lock) < 0) {
		if (errno != EINTR)
			return errno == EACCES ? -EAGAIN : -errno;
	}
	return 0;
}

ssize_t shms_pread_all(int fd, void *buf, size_t size, uint64_t offset)
{
	size_t have = 0;

	while (have < size) {
		ssize_t n = pread(fd, (char *)buf + have, size - have, (off_t)(offset + have));

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		if (n == 0)
			break;
		have += (size_t)n;
	}
	return (ssize_t)have;
}

ssize_t shms_read_text(const char *path, char *ret, size_t size)
{
	_fd_ int fd = shms_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
	ssize_t n = fd < 0 ? -errno : shms_pread_all(fd, ret, size - 1, 0);

	ret[n > 0 ? n : 0] = '\0';
	return n;
}

int shms_read_whole(int fd, char *ret, size_t size)
{
	ssize_t n = shms_pread_all(fd, ret, size - 1, 0);

	if (n < 0)
		return shms_error((int)n);
	ret[n] = '\0';
	return strlen(ret) == (size_t)n ? 0 : -EBADMSG;
}

bool shms_lease(int fd)
{
	/* The signal each time: giving a lease back sets it to SIGIO again, which kills.
	 * SIGURG is ignored by default. */
	return fcntl(fd, F_SETSIG, SIGURG) == 0 && fcntl(fd, F_SETLEASE, F_WRLCK) == 0;
}

bool shms_lease_end(int fd)
{
	return fcntl(fd, F_SETLEASE, F_UNLCK) == 0;
}

bool shms_unused(int fd)
{
	bool unused = shms_lease(fd);

	if (unused)
		shms_lease_end(fd);
	return unused;
}

/* Where getrandom() is refused. */
static void random_from_file(char *buf, size_t size)
{
	_fd_ int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && shms_pread_all(fd, buf, size, 0) == (ssize_t)size)
		return;
	/* Names and numbers that others can guess would be worse than none. */
	fputs("shmstore: neither getrandom() nor /dev/urandom is to be had\n", stderr);
	abort();
}

void shms_random(void *buf, size_t size)
{
	size_t have = 0;

	while (have < size) {
		ssize_t n = getrandom((char *)buf + have, size - have, 0);

		if (n > 0)
			have += (size_t)n;
		else if (errno != EINTR)
			break;
	}
	if (have < size)
		random_from_file((char *)buf + have, size - have);
}

uint64_t shms_nonce(void)
{
	/* splitmix64 (Steele, Lea, Flood 2014) over a random start of each thread; the clock keeps
	 * a forked child, which goes on from the same state, from repeating its parent. */
	static _Thread_local uint64_t state;
	uint64_t z;

	if (!state)
		shms_random(&state, sizeof(state));
	state += 0x9E3779B97F4A7C15u;
	z = state ^ shms_now_mono_ns();
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return z ^ (z >> 31);
}

int64_t shms_now_real_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return shms_stat_ns(&ts);
}

uint64_t shms_now_mono_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)shms_stat_ns(&ts);
}

uint64_t shms_until_ns(uint64_t ms)
{
	uint64_t now = shms_now_mono_ns();

	return ms < (UINT64_MAX - now) / 1000000 ? now + ms * 1000000 : UINT64_MAX;
}

void shms_uuid_parse(const char *text, uint8_t ret[16])
{
	char digits[32] = {0};

	for (size_t n = 0; *text && n < sizeof(digits); text++)
		if (*text != '-')
			digits[n++] = *text;
	if (!shms_hexdigits_read_bytes(digits, ret, 16))
		memset(ret, 0, 16);
}

void shms_boot_id(uint8_t ret_id[16])
{
	char text[64];

	shms_read_text("/proc/sys/kernel/random/boot_id", text, sizeof(text));
	shms_uuid_parse(text, ret_id);
}

void shms_boot_text(char ret[33])
{
	uint8_t id[16];

	shms_boot_id(id);
	shms_hexdigits_write_bytes(id, sizeof(id), ret);
	ret[32] = '\0';
}

int shms_space(int fd, struct shms_space *ret)
{
	struct statvfs fs;

	if (fstatvfs(fd, &fs) < 0)
		return -errno;
	*ret = (struct shms_space){.size = (uint64_t)fs.f_blocks * fs.f_frsize,
				   .used = (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize,
				   .available = (uint64_t)fs.f_bavail * fs.f_frsize,
				   .inodes = fs.f_files,
				   .inodes_free = fs.f_favail};
	return 0;
}
