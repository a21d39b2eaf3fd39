/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.c: mounts and directories of a benchmark, and their end.
 *
 * The janitor is a forked child in a session of its own that blocks on a pipe whose write
 * end the benchmark (and what it forks) holds. End of file means that all of them are gone,
 * also by kill -9; then it removes the files and leaves. So nothing here needs a signal
 * handler, and nothing is left behind.
 */
#include "place.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)ftw;
	if (flag == FTW_DP)
		rmdir(path);
	else
		unlink(path);
	return 0;
}

void place_shm_name(const struct place *p, char ret_name[64])
{
	snprintf(ret_name, 64, "%s.shm", strrchr(p->path, '/'));
}

static void clean(const struct place *p, bool mounted)
{
	char shm[64];

	if (mounted) {
		umount2(p->path, MNT_DETACH);
	} else {
		nftw(p->path, remove_entry, 32, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
		place_shm_name(p, shm);
		shm_unlink(shm);
	}
	rmdir(p->path);
}

static void be_janitor(int fd, const struct place *p, bool mounted)
{
	char c;

	setsid();
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	while (read(fd, &c, 1) < 0 && errno == EINTR)
		;
	clean(p, mounted);
	_exit(0);
}

static int start_janitor(struct place *p, bool mounted)
{
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	fflush(NULL);
	pid = fork();
	if (pid < 0) {
		int r = -errno;

		close(fds[0]);
		close(fds[1]);
		return r;
	}
	if (pid == 0) {
		/* Only the pipe: not the write ends of other places, nor a pipe that
		 * our caller reads to its end. */
		if (fds[0] != 0)
			dup2(fds[0], 0);
		close_range(1, ~0u, 0);
		be_janitor(0, p, mounted);
	}
	close(fds[0]);
	p->alive = fds[1];
	p->janitor = pid;
	return 0;
}

/* The huge= option of the mount that path lies on, out of mountinfo; the last
 * match is the mount on top. */
static void read_huge(struct place *p, const char *mount_point)
{
	char line[1024];
	FILE *f = fopen("/proc/self/mountinfo", "re");

	/* tmpfs leaves the option out when it is this */
	snprintf(p->huge, sizeof(p->huge), "never");
	if (!f)
		return;
	while (fgets(line, sizeof(line), f)) {
		char where[512], *huge;

		if (sscanf(line, "%*s %*s %*s %*s %511s", where) != 1 ||
		    strcmp(where, mount_point) != 0)
			continue;
		huge = strstr(line, "huge=");
		if (huge)
			snprintf(p->huge, sizeof(p->huge), "%.*s", (int)strcspn(huge + 5, ", \n"),
				 huge + 5);
		else
			snprintf(p->huge, sizeof(p->huge), "never");
	}
	fclose(f);
}

int place_open_mount(struct place *p, uint64_t size, uint64_t inodes)
{
	static bool private;
	char options[96];
	int n, r;

	*p = (struct place){.label = "within_size", .path = "/tmp/shmstore-bench-XXXXXX"};
	if (geteuid() != 0)
		return -EPERM;
	if (!private &&
	    (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0))
		return -errno;
	private = true;
	if (!mkdtemp(p->path))
		return -errno;
	n = snprintf(options, sizeof(options), "huge=within_size,mode=0700");
	if (size)
		n += snprintf(options + n, sizeof(options) - (size_t)n, ",size=%llu",
			      (unsigned long long)size);
	if (inodes)
		snprintf(options + n, sizeof(options) - (size_t)n, ",nr_inodes=%llu",
			 (unsigned long long)inodes);
	if (mount("shmstore-bench", p->path, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0) {
		r = -errno;
		rmdir(p->path);
		return r;
	}
	read_huge(p, p->path);
	r = start_janitor(p, true);
	if (r < 0)
		clean(p, true);
	return r;
}

int place_open_devshm(struct place *p)
{
	int r;

	*p = (struct place){.label = "/dev/shm", .path = "/dev/shm/shmstore-bench-XXXXXX"};
	if (!mkdtemp(p->path))
		return -errno;
	read_huge(p, "/dev/shm");
	r = start_janitor(p, false);
	if (r < 0)
		clean(p, false);
	return r;
}

int place_open_disk(struct place *p)
{
	const char *base = getenv("SHMSTORE_BENCH_DISK");
	struct statfs fs;
	int n, r;

	if (!base || !*base)
		base = "/var/tmp";
	*p = (struct place){.label = "disk"};
	n = snprintf(p->path, sizeof(p->path), "%s/shmstore-bench-XXXXXX", base);
	if (n < 0 || (size_t)n >= sizeof(p->path))
		return -ENAMETOOLONG;
	if (statfs(base, &fs) < 0)
		return -errno;
	if (fs.f_type == TMPFS_MAGIC)
		return -ENODEV;
	if (!mkdtemp(p->path))
		return -errno;
	r = start_janitor(p, false);
	if (r < 0)
		clean(p, false);
	return r;
}

void place_close(struct place *p)
{
	if (p->janitor <= 0)
		return;
	close(p->alive);
	while (waitpid(p->janitor, NULL, 0) < 0 && errno == EINTR)
		;
	p->janitor = 0;
}

int place_reserve_init(struct place_reserve *r, const struct place *p, uint64_t size)
{
	static char chunk[1 << 20];

	r->left = 0;
	r->fd = open(p->path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (r->fd < 0)
		return -errno;
	memset(chunk, 0x5a, sizeof(chunk));
	while (r->left < size) {
		if (write(r->fd, chunk, sizeof(chunk)) < 0) {
			int e = -errno;

			if (e == -ENOSPC)
				return 0;
			place_reserve_deinit(r);
			return e;
		}
		r->left += sizeof(chunk);
	}
	return 0;
}

void place_reserve_give(struct place_reserve *r, uint64_t bytes)
{
	r->left -= bytes < r->left ? bytes : r->left;
	/* The end goes first; an error leaves more there than is needed, no more. */
	if (ftruncate(r->fd, (off_t)r->left) < 0)
		return;
}

void place_reserve_deinit(struct place_reserve *r)
{
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
}

int place_warm(const struct place *p, uint64_t size)
{
	struct place_reserve r;
	int e = place_reserve_init(&r, p, size);

	if (e == 0)
		place_reserve_deinit(&r);
	return e;
}

int place_path(const struct place *p, const char *name, char *ret_path, size_t size)
{
	int n = snprintf(ret_path, size, "%s/%s", p->path, name);

	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

uint64_t place_used(const struct place *p)
{
	struct statvfs v;

	return statvfs(p->path, &v) < 0 ? 0 : (uint64_t)(v.f_blocks - v.f_bfree) * v.f_frsize;
}
