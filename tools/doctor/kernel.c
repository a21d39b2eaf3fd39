/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_kernel.c: what the kernel, or a seccomp filter before it, lets us do: found out by
 * doing it, with an unnamed file in the partition (in /dev/shm where there is none yet). Names
 * that are made are removed at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cleanup.h"
#include "doctor.h"
#include "refused.h"
#include "sysroot.h"

/* Gives the unnamed file a name and takes it away. 0 or -errno. */
static int try_linkat(int fd, int dirfd, bool empty_path)
{
	char name[64], path[64];
	int r;

	snprintf(name, sizeof(name), ".doctor-%d", getpid());
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (empty_path)
		r = linkat(fd, "", dirfd, name, AT_EMPTY_PATH);
	else
		r = linkat(AT_FDCWD, path, dirfd, name, AT_SYMLINK_FOLLOW);
	if (r < 0)
		return -errno;
	unlinkat(dirfd, name, 0);
	return 0;
}

static void check_publish(struct doctor *d, int fd, int dirfd)
{
	int direct = try_linkat(fd, dirfd, true);
	/* a file whose last name is gone cannot be linked again: the fallback is tried only where
	 * the first way was refused */
	int fallback = direct == 0 ? 0 : try_linkat(fd, dirfd, false);

	if (direct == 0)
		doctor_ok(d, "O_TMPFILE and linkat(AT_EMPTY_PATH) work");
	else if (fallback == 0)
		doctor_ok(d, "O_TMPFILE works; links go through /proc/self/fd (AT_EMPTY_PATH: %s)",
			  strerror(-direct));
	else
		doctor_fail(d, "an unnamed file cannot be linked: %s; through /proc/self/fd: %s",
			    strerror(-direct), strerror(-fallback));
}

static void check_openat2(struct doctor *d, int dirfd)
{
	struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
			       .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV};
	long fd = syscall(SYS_openat2, dirfd, ".", &how, sizeof(how));

	d->check = "openat2";
	if (fd < 0) {
		doctor_add(d, shms_refused(SYS_openat2) ? DOCTOR_WARN : DOCTOR_FAIL,
			   "openat2: %s; it needs Linux 5.6 and a seccomp filter that allows it, "
			   "which systemd's RestrictSUIDSGID= and DynamicUser= do not; directories "
			   "are opened step by step, by more calls",
			   strerror(errno));
		return;
	}
	close((int)fd);
	doctor_ok(d, "openat2 with RESOLVE_BENEATH works");
}

static void check_lease(struct doctor *d, int fd)
{
	d->check = "leases";
	if (fcntl(fd, F_SETLEASE, F_WRLCK) < 0) {
		doctor_warn(d, "F_SETLEASE: %s; deleted objects are not recycled", strerror(errno));
		return;
	}
	fcntl(fd, F_SETLEASE, F_UNLCK);
	doctor_ok(d, "F_SETLEASE works: deleted objects can be recycled");
}

static void check_rename(struct doctor *d, int dirfd)
{
	char one[64], two[64];

	d->check = "renameat2";
	snprintf(one, sizeof(one), ".doctor-%d-1", getpid());
	snprintf(two, sizeof(two), ".doctor-%d-2", getpid());
	if (mknodat(dirfd, one, S_IFREG | 0400, 0) < 0) {
		doctor_warn(d, "not tried: %s", strerror(errno));
		return;
	}
	int r = renameat2(dirfd, one, dirfd, two, RENAME_NOREPLACE) < 0 ? errno : 0;
	unlinkat(dirfd, one, 0);
	unlinkat(dirfd, two, 0);
	if (r)
		doctor_warn(d,
			    "renameat2 with RENAME_NOREPLACE: %s; files are moved by a link and an "
			    "unlink, and what is replaced is not recycled",
			    strerror(r));
	else
		doctor_ok(d, "renameat2 with RENAME_NOREPLACE works");
}

static void check_huge_pages(struct doctor *d)
{
	static const char path[] = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
	_free_ char *text = sysroot_read(d->admin, path);
	char *value = text ? strchr(text, '[') : NULL;

	d->check = "huge-pages";
	if (!value) {
		doctor_warn(d, "this kernel has no huge pages for shared memory");
		return;
	}
	value++;
	value[strcspn(value, "]")] = '\0';
	if (strcmp(value, "deny") == 0) {
		doctor_warn(d, "shmem_enabled is deny: no mount gets huge pages");
		doctor_fix_root(d, "sh -c 'echo never > %s'", path);
	} else {
		doctor_ok(d, "shmem_enabled is %s: the mount's huge= decides", value);
	}
}

/* The other calls that a filter refuses. */
static void check_refused(struct doctor *d)
{
	struct shms_refusal refused[SHMS_REFUSED_MAX];
	size_t n = shms_refused_list(refused), n_said = 0;

	d->check = "refused";
	for (size_t i = 0; i < n; i++) {
		if (strcmp(refused[i].call, "openat2") == 0)
			continue;
		doctor_add(d, refused[i].spared ? DOCTOR_WARN : DOCTOR_FAIL, "%s: %s: %s",
			   refused[i].call, strerror(refused[i].error), refused[i].without);
		n_said++;
	}
	if (!n_said)
		doctor_ok(d, "no other system call that is needed is refused");
}

void doctor_check_kernel(struct doctor *d)
{
	const char *dir = d->exists && d->writable ? d->dir : "/dev/shm";
	int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int fd = dirfd < 0 ? -1 : openat(dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	d->check = "o-tmpfile";
	if (dirfd < 0) {
		doctor_warn(d, "not tried: %s: %s", dir, strerror(errno));
	} else if (fd < 0 && errno == ENOSPC) {
		doctor_warn(d, "not tried: %s is full", dir);
	} else if (fd < 0) {
		doctor_warn(
			d,
			"O_TMPFILE in %s: %s; files have a name in recycle/ until they are whole: "
			"a call more each, and gc removes what killed processes leave there",
			dir, strerror(errno));
	} else {
		check_publish(d, fd, dirfd);
		check_lease(d, fd);
	}
	if (dirfd >= 0) {
		check_openat2(d, dirfd);
		check_rename(d, dirfd);
		close(dirfd);
	}
	if (fd >= 0)
		close(fd);
	check_refused(d);
	check_huge_pages(d);
}
