/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where O_TMPFILE was refused (gVisor: EISDIR, some file systems: EOPNOTSUPP, a filter: EPERM) a
 * new partition's marker was called damaged, and a partition on a tmpfs one on a disk; with linkat
 * or renameat2 refused nothing could be made, or replaced. All of it works by names aside.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "handle.h"
#include "interpose.h"

static int tmpfile_error; /* that O_TMPFILE is refused with; 0: it is not */
static bool links_refused, renames_refused;

int openat(int dir_fd, const char *path, int flags, ...)
{
	typedef int fn(int, const char *, int, mode_t);
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = va_arg(ap, mode_t);
	va_end(ap);
	if (tmpfile_error && (flags & O_TMPFILE) == O_TMPFILE) {
		errno = tmpfile_error;
		return -1;
	}
	return NEXT(fn *, "openat")(dir_fd, path, flags, mode);
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
	typedef int fn(int, const char *, int, const char *, int);

	if (links_refused) {
		errno = EPERM;
		return -1;
	}
	return NEXT(fn *, "linkat")(from_fd, from, to_fd, to, flags);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
	typedef int fn(int, const char *, int, const char *, unsigned);

	if (renames_refused) {
		errno = EINVAL; /* libc's, for the kernel's ENOSYS */
		return -1;
	}
	return NEXT(fn *, "renameat2")(from_fd, from, to_fd, to, flags);
}

long syscall(long number, ...)
{
	va_list ap;
	long r;

	if ((links_refused && number == SYS_linkat) ||
	    (renames_refused && number == SYS_renameat2)) {
		errno = number == SYS_linkat ? EPERM : ENOSYS;
		return -1;
	}
	va_start(ap, number);
	r = interpose_syscall(number, ap);
	va_end(ap);
	return r;
}

static struct shmstore_usage books(struct shmstore *s)
{
	struct shmstore_usage u;

	cr_assert_eq(shmstore_partition_usage(s->p, SHMSTORE_USAGE_FULL, &u), 0);
	cr_assert_eq(u.residual, 0);
	cr_assert_eq(u.foreign, 0);
	return u;
}

/* Each way to make a file. */
static void puts_of_all_kinds(struct shmstore *s)
{
	struct shmstore_writer *w;
	char key[400];
	void *buffer;
	uint64_t size = 1 << 20;
	struct iovec iov;

	memset(key, 'x', sizeof(key));
	cr_assert_eq(put_pattern(s, "file", 300000, 1, 0), 0);
	cr_assert_eq(put_pattern(s, "file", 300000, 2, SHMSTORE_REPLACE), 0);
	cr_assert_eq(get_pattern(s, "file", 300000, 2), 0);
	cr_assert_eq(put_pattern(s, "file", 300000, 2, 0), -EEXIST);
	cr_assert_eq(seal_pattern(s, "sealed", 300000, 3, 0), 0);
	cr_assert_eq(get_pattern(s, "sealed", 300000, 3), 0);
	cr_assert_eq(
		shmstore_put(s, key, sizeof(key), NULL, 0, &(struct iovec){key, sizeof(key)}, 1, 0),
		0);
	cr_assert_eq(shmstore_create(s, KEY("aborted"), 0, &size, 1, 0, &w), 0);
	books(s);
	shmstore_abort(w);
	cr_assert_eq(shmstore_alloc(s, size, 0, &buffer), 0);
	memset(buffer, 7, size);
	books(s);
	iov = (struct iovec){buffer, size};
	cr_assert_eq(shmstore_put(s, KEY("draft"), NULL, 0, &iov, 1, 0), 0);
	cr_assert_eq(shmstore_free(buffer), size);
	books(s);
}

static void hand_over(struct shmstore *s, struct shmstore *other)
{
	struct shmstore_ticket t;

	cr_assert_eq(shmstore_handoff(s, KEY("file"), 60000, &t), 0);
	cr_assert_eq(shmstore_adopt(other, KEY("file"), &t, 0), 0);
	cr_assert_eq(shmstore_adopt(other, KEY("again"), &t, 0), -ESTALE,
		     "a ticket was good twice");
	cr_assert_eq(get_pattern(other, "file", 300000, 2), 0);
}

static void all_works(bool can_link)
{
	struct shmstore *s = scratch_store("s"), *other = scratch_store("other");

	puts_of_all_kinds(s);
	if (can_link)
		hand_over(s, other);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(shmstore_close(other), 0);
	ensure_nothing_left();
	cr_assert_eq(count_dir(scratch_partition_path()), 3);
}

Test(tmpfile_refused, by_a_sandbox)
{
	tmpfile_error = EISDIR;
	all_works(true);
}

Test(tmpfile_refused, by_a_file_system)
{
	tmpfile_error = EOPNOTSUPP;
	all_works(true);
}

Test(tmpfile_refused, by_a_filter)
{
	tmpfile_error = EPERM;
	all_works(true);
}

Test(tmpfile_refused, links_are)
{
	struct shmstore_ticket t;
	struct shmstore *s;

	links_refused = true;
	all_works(false);
	s = scratch_store("s");
	cr_assert_eq(put_pattern(s, "k", 2 << 20, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("k"), 60000, &t), -EPERM);
	cr_assert(strstr(shmstore_error_detail(), "linkat (Operation not permitted)"), "%s",
		  shmstore_error_detail());
	cr_assert_eq(shmstore_close(s), 0);
}

Test(tmpfile_refused, renames_are)
{
	renames_refused = true;
	all_works(true);
}

Test(tmpfile_refused, renames_and_unnamed_files_are)
{
	renames_refused = true;
	tmpfile_error = EISDIR;
	all_works(true);
}

/* A child has no part in what its parent is making. */
Test(tmpfile_refused, child_leaves_names_alone)
{
	struct shmstore *s = scratch_plain_store("s");
	struct shmstore_writer *w;
	uint64_t size = 1 << 20;
	pid_t child;
	int status;

	tmpfile_error = EISDIR;
	cr_assert_eq(shmstore_create(s, KEY("k"), 0, &size, 1, 0, &w), 0);
	cr_assert_eq(count_in_store("s", "recycle"), 1);
	child = fork_bound(60);
	if (child == 0) {
		shmstore_abort(w);
		_exit(0);
	}
	cr_assert(waitpid(child, &status, 0) == child && WIFEXITED(status));
	cr_assert_eq(count_in_store("s", "recycle"), 1);
	cr_assert_eq(shmstore_seal(w), 0);
	cr_assert_eq(count_in_store("s", "recycle"), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

static int make_at(const char *path)
{
	int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0400);

	cr_assert(fd >= 0 && ftruncate(fd, 4096) == 0 && pwrite(fd, path, 8, 0) == 8);
	return fd;
}

/* The file of a maker who was killed goes, in a store that lives too; one
 * that somebody has open stays. */
Test(tmpfile_refused, gc_takes_what_the_killed_left)
{
	struct shmstore *s = scratch_plain_store("s");
	char root[SCRATCH_PATH];
	struct shmstore_gc_report report;
	int held;

	snprintf(root, sizeof(root), "%s/new-0123456789abcdef", scratch_partition_path());
	close(make_at(scratch_store_path("s", "recycle/new-00000000000000aa")));
	held = make_at(scratch_store_path("s", "recycle/new-00000000000000bb"));
	close(make_at(root));
	cr_assert_eq(books(s).inflight, 2 * 4096);
	cr_assert_eq(shmstore_partition_gc(s->p, SHMSTORE_GC_DRY_RUN, &report), 0);
	cr_assert_eq(report.freed, 2 * 4096);
	cr_assert_eq(access(root, F_OK), 0);
	cr_assert_eq(shmstore_partition_gc(s->p, 0, &report), 0);
	cr_assert_eq(report.freed, 2 * 4096);
	cr_assert_eq(access(root, F_OK), -1);
	cr_assert_eq(count_in_store("s", "recycle"), 1);
	close(held);
	cr_assert_eq(shmstore_partition_gc(s->p, 0, &report), 0);
	cr_assert_eq(count_in_store("s", "recycle"), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
