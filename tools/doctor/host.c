/* SPDX-License-Identifier: Apache-2.0 */
/* doctor_host.c: limits and settings of the host that decide whether shared memory can
 * be filled, mapped and kept. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "admin.h"
#include "cleanup.h"
#include "doctor.h"
#include "jsonin.h"
#include "refused.h"
#include "sysroot.h"

static void check_swap(struct doctor *d)
{
	const char *swap = human_size(d->swap);
	char value[8];

	if (!d->swap) {
		doctor_ok(d, "none: objects stay in memory");
		return;
	}
	if (d->mount && mountinfo_option(d->mount->super, "noswap", value, sizeof(value))) {
		doctor_ok(d, "%s, and the mount has noswap", swap);
		return;
	}
	doctor_warn(d, "%s: objects may be swapped out, and reading them waits for the disk", swap);
	doctor_fix_root(d, "sysctl vm.swappiness=1");
}

/* The lowest limit of our memory cgroup and of those around it. ret_file: where it is written.
 * UINT64_MAX: there is none. */
static uint64_t lowest_limit(const struct doctor *d, char ret_file[PATH_MAX])
{
	uint64_t lowest = UINT64_MAX;

	for (size_t i = 1; i < d->memory.n_levels; i++) {
		const struct memsource_level *l = &d->memory.levels[i];
		const struct memsource_term *limit = &l->terms[0];

		if (limit->state != MEMSOURCE_READ || (uint64_t)limit->bytes >= lowest)
			continue;
		lowest = (uint64_t)limit->bytes;
		snprintf(ret_file, PATH_MAX, "%s/%s", l->path + strlen(d->admin->root),
			 limit->name);
	}
	return lowest;
}

static void check_cgroup(struct doctor *d)
{
	char file[PATH_MAX];
	uint64_t limit = lowest_limit(d, file);

	if (limit == UINT64_MAX || (d->ram && limit >= d->ram)) {
		doctor_ok(d, "no memory limit below the RAM");
		return;
	}
	if (d->tmpfs && d->size && limit >= d->size * 2) {
		doctor_ok(d, "memory limit %s (%s)", human_size(limit), file);
		return;
	}
	doctor_warn(d, "memory limit %s (%s), %s: %s", human_size(limit), file,
		    d->tmpfs && d->size && limit >= d->size ? "less than twice the partition"
							    : "less than the partition",
		    d->tmpfs && d->size && limit >= d->size
			    ? "what is in it leaves little for the processes"
			    : "writers are killed before it is full");
	if (d->tmpfs)
		doctor_fix_root(d, "mount -o remount,size=%" PRIu64 " %s",
				limit / 2 & ~(uint64_t)4095,
				shellword(d->mount ? d->mount->point : d->dir));
	else
		doctor_fix_root(d, ADMIN_NAME " -p %s init --size %" PRIu64, shellword(d->path),
				limit / 2 & ~(uint64_t)4095);
}

static void check_open_files(struct doctor *d)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	enum doctor_level level = limit.rlim_cur < 64     ? DOCTOR_FAIL
				  : limit.rlim_cur < 1024 ? DOCTOR_WARN
							  : DOCTOR_OK;
	if (level == DOCTOR_OK) {
		doctor_add(d, level, "ulimit -n is %" PRIu64, (uint64_t)limit.rlim_cur);
		return;
	}
	doctor_add(d, level, "ulimit -n is %" PRIu64 ": at least 1024 are recommended",
		   (uint64_t)limit.rlim_cur);
	if (limit.rlim_max >= 1024)
		doctor_fix(d, "ulimit -n %" PRIu64,
			   (uint64_t)(limit.rlim_max < 65536 ? limit.rlim_max : 65536));
	else
		doctor_fix_root(d, "prlimit --nofile=65536:65536 --pid $$");
}

static void check_map_count(struct doctor *d)
{
	uint64_t count;

	if (!sysroot_number(d->admin, "/proc/sys/vm/max_map_count", &count)) {
		doctor_warn(d, "vm.max_map_count cannot be read");
		return;
	}
	enum doctor_level level = count < 4096    ? DOCTOR_FAIL
				  : count < 65530 ? DOCTOR_WARN
						  : DOCTOR_OK;
	doctor_add(d, level,
		   "vm.max_map_count is %" PRIu64 ": so many views, at most, can one process hold",
		   count);
	if (level != DOCTOR_OK)
		doctor_fix_root(d, "sysctl vm.max_map_count=262144");
}

static void check_hardlinks(struct doctor *d)
{
	uint64_t value;

	if (!sysroot_number(d->admin, "/proc/sys/fs/protected_hardlinks", &value)) {
		doctor_warn(d, "fs.protected_hardlinks cannot be read");
	} else if (value) {
		doctor_ok(d,
			  "fs.protected_hardlinks is %" PRIu64
			  ": no user can link another user's objects",
			  value);
	} else {
		doctor_warn(d, "fs.protected_hardlinks is 0: users can pin the memory of others by "
			       "linking it");
		doctor_fix_root(d, "sysctl fs.protected_hardlinks=1");
	}
}

/* ---- RemoveIPC ---- */

/* The value of RemoveIPC= in a logind.conf: 1, 0, or before where the text does not say. */
static int remove_ipc_of(char *text, int before)
{
	char *save = NULL;
	bool login = false;

	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		line += strspn(line, " \t");
		if (*line == '[')
			login = strncmp(line, "[Login]", 7) == 0;
		if (!login || strncmp(line, "RemoveIPC", 9) != 0)
			continue;
		line += 9;
		line += strspn(line, " \t");
		if (*line++ != '=')
			continue;
		line += strspn(line, " \t");
		size_t n = strcspn(line, " \t\r");
		if (n == 0)
			before = -1; /* an empty value: the default again */
		for (size_t i = 0; i < 10; i++) {
			static const char *const words[] = {"no", "yes", "false", "true", "off",
							    "on", "0",   "1",     "n",    "y"};
			if (strlen(words[i]) == n && strncasecmp(line, words[i], n) == 0)
				before = (int)(i % 2);
		}
	}
	return before;
}

static int read_remove_ipc(const struct admin *a, const char *path, int before)
{
	_free_ char *text = sysroot_read(a, path);

	return text ? remove_ipc_of(text, before) : before;
}

/* Reads logind.conf, then the drop-ins of all directories in order of name; of several of one name
 * only the first (logind.conf(5)). */
static bool removes_ipc(const struct admin *a)
{
	_free_ char *pattern =
		sysroot_path(a, "/{etc,run,usr/local/lib,usr/lib}/systemd/logind.conf.d/*.conf");
	int value = read_remove_ipc(a, "/etc/systemd/logind.conf", -1);
	const char *last = "", *next;
	glob_t found = {0};

	glob(pattern, GLOB_BRACE, NULL, &found);
	do {
		next = NULL;
		for (size_t i = 0; i < found.gl_pathc; i++) {
			const char *path = found.gl_pathv[i];

			if (strcmp(basename(path), last) > 0 &&
			    (!next || strcmp(basename(path), basename(next)) < 0))
				next = path;
		}
		if (next) {
			value = read_remove_ipc(a, next + strlen(a->root), value);
			last = basename(next);
		}
	} while (next);
	globfree(&found);
	return value != 0; /* yes is the default */
}

static void check_remove_ipc(struct doctor *d)
{
	_free_ char *systemd = sysroot_path(d->admin, "/run/systemd/system");
	const char *dir = d->exists ? d->dir : d->path;

	if (strcmp(dir, "/dev/shm") != 0 && !mountinfo_below(dir, "/dev/shm")) {
		doctor_ok(d, "not in /dev/shm: systemd leaves it alone");
	} else if (d->mount && d->exists && strcmp(d->mount->point, "/dev/shm") != 0 &&
		   strcmp(d->mount->point, "/dev") != 0 && strcmp(d->mount->point, "/") != 0) {
		doctor_ok(d, "a mount of its own: it stays when a user logs out");
	} else if (d->owner < 1000) {
		doctor_ok(d, "user %u is a system user: systemd leaves its files alone", d->owner);
	} else if (access(systemd, F_OK) < 0) {
		doctor_ok(d, "systemd does not run here");
	} else if (!removes_ipc(d->admin)) {
		doctor_ok(d, "RemoveIPC=no");
	} else {
		doctor_warn(d,
			    "RemoveIPC=yes: systemd removes the files of user %u from /dev/shm "
			    "when their last session ends",
			    d->owner);
		doctor_fix_root(
			d,
			"sh -c 'mkdir -p /etc/systemd/logind.conf.d && printf "
			"\"[Login]\\nRemoveIPC=no\\n\" > /etc/systemd/logind.conf.d/shmstore.conf "
			"&& systemctl restart systemd-logind'");
	}
}

static void check_proc(struct doctor *d)
{
	char hidepid[16] = "";
	const struct shms_mountline *m = mountinfo_find(&d->mounts, "/proc");

	if (!m || strcmp(m->type, "proc") != 0) {
		doctor_warn(d, "/proc is not mounted: reconcile cannot name holders");
		return;
	}
	if (!mountinfo_option(m->super, "hidepid", hidepid, sizeof(hidepid)))
		mountinfo_option(m->options, "hidepid", hidepid, sizeof(hidepid));
	bool hidden = hidepid[0] && strcmp(hidepid, "0") != 0 && strcmp(hidepid, "off") != 0;
	if (geteuid() == 0) {
		doctor_ok(d, "root may look into every process%s%s", hidden ? "; hidepid=" : "",
			  hidepid);
	} else if (!hidden) {
		doctor_ok(d, "your own processes can be looked into; those of others need root");
	} else {
		doctor_warn(d, "hidepid=%s: reconcile does not see processes of other users",
			    hidepid);
		doctor_fix_root(d, "mount -o remount,hidepid=0 /proc");
	}
}

const struct doctor_check doctor_of_host[] = {
	{"swap", check_swap},
	{"cgroup", check_cgroup},
	{"open-files", check_open_files},
	{"map-count", check_map_count},
	{"protected-hardlinks", check_hardlinks},
	{"remove-ipc", check_remove_ipc},
	{"proc", check_proc},
	{NULL, NULL},
};

/* ---- what the kernel lets us do -------------------------------------------------------------- */

/* Found out by doing it, with an unnamed file in the partition (in /dev/shm where there is none
 * yet). */

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
