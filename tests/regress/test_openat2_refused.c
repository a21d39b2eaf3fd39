/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where openat2 was refused (ENOSYS: systemd's RestrictSUIDSGID=, EPERM: a container's filter) a
 * partition seemed empty, gc found no garbage, verify called whole directories bad and an adoption
 * spoke of another version. Opening by steps must answer as openat2 does.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "api.h"
#include "handle.h"
#include "interpose.h"
#include "refused.h"

static int refusal; /* the errno that openat2 is refused with; 0: it is not */
static bool no_statx;

long syscall(long number, ...)
{
	va_list ap;
	long r;

	if (refusal && number == SYS_openat2) {
		errno = refusal;
		return -1;
	}
	va_start(ap, number);
	r = interpose_syscall(number, ap);
	va_end(ap);
	return r;
}

int statx(int fd, const char *path, int flags, unsigned mask, struct statx *ret)
{
	typedef int fn(int, const char *, int, unsigned, struct statx *);

	if (no_statx) {
		errno = ENOSYS;
		return -1;
	}
	return NEXT(fn *, "statx")(fd, path, flags, mask, ret);
}

static const struct {
	const char *path;
	int flags;
} PATHS[] = {
	{".", O_RDONLY | O_DIRECTORY},
	{"a", O_RDONLY | O_DIRECTORY},
	{"a/b", O_RDONLY | O_DIRECTORY},
	{"a//b/file", O_RDONLY | O_NOFOLLOW | O_NONBLOCK},
	{"a/./b/file", O_PATH | O_NOFOLLOW},
	{"a/b/file", O_RDWR},
	{"a/b/file", O_RDONLY | O_DIRECTORY},
	{"a/b/file/x", O_RDONLY},
	{"a/none", O_RDONLY},
	{"none/a", O_RDONLY | O_DIRECTORY},
	{"", O_RDONLY},
	{"/", O_RDONLY | O_DIRECTORY},
	{"..", O_RDONLY | O_DIRECTORY},
	{"a/link", O_RDONLY | O_DIRECTORY},
	{"a/link", O_RDONLY},
	{"a/link", O_RDONLY | O_NOFOLLOW},
	{"a/link", O_PATH | O_NOFOLLOW},
	{"a/link/file", O_RDONLY},
	{"a/dangling", O_RDONLY},
	{"mounted", O_RDONLY | O_DIRECTORY},
	{"mounted/file", O_RDONLY},
};
#define N_PATHS (sizeof(PATHS) / sizeof(*PATHS))

static void make_tree(const char *dir)
{
	char path[SCRATCH_PATH], target[SCRATCH_PATH];
	int fd;

	cr_assert_eq(chdir(dir), 0);
	cr_assert_eq(mkdir("a", 0700) | mkdir("a/b", 0700) | mkdir("mounted", 0700), 0);
	fd = open("a/b/file", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	cr_assert(fd >= 0 && close(fd) == 0);
	cr_assert_eq(symlink("b", "a/link") | symlink("nowhere", "a/dangling"), 0);
	/* The same file system once more: only the mount's number tells. */
	snprintf(path, sizeof(path), "%s/a/b", dir);
	snprintf(target, sizeof(target), "%s/mounted", dir);
	if (scratch_is_mount())
		cr_assert_eq(mount(path, target, NULL, MS_BIND, NULL), 0);
}

/* -errno, or the inode that was opened. */
static long answer(int dir, size_t i)
{
	int fd = shms_beneath_open(dir, PATHS[i].path, PATHS[i].flags);
	struct stat st;

	if (fd < 0)
		return fd;
	cr_assert_eq(fstat(fd, &st), 0);
	cr_assert_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);
	return (long)st.st_ino;
}

static void answers_alike(void)
{
	const char *where = scratch_dir(NULL);
	int dir = open(where, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	long want[N_PATHS];

	make_tree(where);
	for (size_t i = 0; i < N_PATHS; i++)
		want[i] = answer(dir, i);
	refusal = ENOSYS;
	for (size_t i = 0; i < N_PATHS; i++) {
		long got = answer(dir, i);

		cr_assert_eq(got, want[i], "%s, flags %o: %ld, not %ld", PATHS[i].path,
			     PATHS[i].flags, got, want[i]);
	}
	close(dir);
	if (scratch_is_mount())
		umount2("mounted", MNT_DETACH);
}

Test(openat2_refused, steps_answer_as_openat2_does)
{
	answers_alike();
}

Test(openat2_refused, mounts_are_told_without_statx)
{
	no_statx = true;
	answers_alike();
}

static void all_works(int error)
{
	struct shmstore *s = scratch_store("s"), *other = scratch_store("other");
	struct shmstore_gc_report report;
	struct shmstore_usage u;
	struct shmstore_ticket t;

	refusal = error;
	cr_assert_eq(put_pattern(s, "k", 100000, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("k"), 60000, &t), 0);
	cr_assert_eq(shmstore_adopt(other, KEY("k"), &t, 0), 0);
	cr_assert_eq(get_pattern(other, "k", 100000, 1), 0);
	cr_assert_eq(shmstore_partition_usage(s->p, SHMSTORE_USAGE_FULL, &u), 0);
	cr_assert_eq(u.n_stores, 2);
	cr_assert_eq(u.n_objects, 2);
	cr_assert_eq(u.residual, 0);
	cr_assert_eq(shmstore_partition_gc(s->p, 0, &report), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(shmstore_close(other), 0);
	ensure_nothing_left();
}

Test(openat2_refused, nothing_seems_empty_without_it)
{
	all_works(ENOSYS);
}

Test(openat2_refused, nothing_seems_anothers_without_it)
{
	all_works(EPERM);
}
