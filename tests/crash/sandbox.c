/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox.c: see sandbox.h.
 *
 * sandbox_run() unshares in a forked child and forks once more: the grandchild is process 1 of the
 * new PID namespace, mounts its own /proc and the tmpfs on a directory that every system has (in a
 * private mount namespace nothing of it shows outside, so there is nothing to clean up), and runs
 * the body. Should the caller die, PDEATHSIG ends process 1 and with it all others of the
 * namespace. Needs CAP_SYS_ADMIN.
 */
#include "sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

static int refuse(const char *what)
{
	printf("SKIP %s: %s\n", what, strerror(errno));
	fflush(stdout);
	return 77;
}

static const char *mount_point(void)
{
	static const char *const candidates[] = {"/mnt", "/media", "/srv", "/var/tmp"};
	for (size_t i = 0; i < sizeof(candidates) / sizeof(candidates[0]); i++) {
		struct stat st;
		if (lstat(candidates[i], &st) == 0 && S_ISDIR(st.st_mode))
			return candidates[i];
	}
	return NULL;
}

int sandbox_remount(const char *path, const char *mount_options)
{
	umount2(path, MNT_DETACH);
	return mount("shmstore-test", path, "tmpfs", MS_NOSUID | MS_NODEV, mount_options) < 0
		       ? -errno
		       : 0;
}

static int inner(const char *mount_options, int (*body)(const char *path, void *arg), void *arg)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return refuse("private mounts");
	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return refuse("mounting /proc");
	const char *path = mount_point();
	if (!path) {
		errno = ENOENT;
		return refuse("a directory to mount on");
	}
	if (mount("shmstore-test", path, "tmpfs", MS_NOSUID | MS_NODEV, mount_options) < 0)
		return refuse("mounting a tmpfs");
	return body(path, arg);
}

/* The first of these that is a directory and not in memory. */
static const char *disk_place(void)
{
	const char *const candidates[] = {getenv("SHMSTORE_TEST_DISK"), "/var/tmp", "/tmp"};
	for (size_t i = 0; i < sizeof(candidates) / sizeof(candidates[0]); i++) {
		struct statfs fs;
		if (candidates[i] && candidates[i][0] == '/' && statfs(candidates[i], &fs) == 0 &&
		    fs.f_type != TMPFS_MAGIC && fs.f_type != RAMFS_MAGIC &&
		    access(candidates[i], W_OK) == 0)
			return candidates[i];
	}
	errno = ENOTSUP;
	return NULL;
}

/*
 * The directory is removed by a process that reads a pipe of which all others of the test hold the
 * other end: it reads the end when the last of them is gone. No signal meant for them reaches it.
 */
const char *sandbox_disk(void)
{
	static char path[256];
	const char *place = disk_place();
	if (!place)
		return NULL;
	snprintf(path, sizeof(path), "%s/shmstore-test-XXXXXX", place);
	int fds[2];
	if (!mkdtemp(path))
		return NULL;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return rmdir(path), NULL;
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		setsid();
		signal(SIGTERM, SIG_IGN);
		close(fds[1]);
		char none;
		while (read(fds[0], &none, 1) < 0 && errno == EINTR)
			;
		sandbox_wipe(path);
		_exit(rmdir(path) < 0);
	}
	close(fds[0]);
	return pid < 0 ? (rmdir(path), NULL) : path;
}

static int wait_status(pid_t pid)
{
	int status;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 3;
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	printf("FAIL the test was ended by signal %d\n", WTERMSIG(status));
	fflush(stdout);
	return 3;
}

int sandbox_run(const char *mount_options, int (*body)(const char *path, void *arg), void *arg)
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid < 0)
		return refuse("fork");
	if (pid > 0)
		return wait_status(pid);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* When a shell ends, the kernel continues the stopped processes that it started. */
	setsid();
	if (unshare(CLONE_NEWNS | CLONE_NEWPID) < 0)
		_exit(refuse("unshare (needs root)"));
	pid = fork();
	if (pid < 0)
		_exit(refuse("fork"));
	if (pid == 0) {
		int rc = inner(mount_options, body, arg);
		fflush(stdout);
		_exit(rc);
	}
	_exit(wait_status(pid));
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

char *sandbox_tree(const char *path)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	if (!out)
		return NULL;
	char root[4096];
	snprintf(root, sizeof(root), "%s", path);
	char *roots[] = {root, NULL};
	FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
	if (fts) {
		const FTSENT *e;
		while ((e = fts_read(fts))) {
			if (e->fts_info == FTS_DP || e->fts_level == 0)
				continue;
			const struct stat *st = e->fts_statp;
			if (S_ISDIR(st->st_mode))
				fprintf(out, "%06o %s\n", st->st_mode, e->fts_path + strlen(path));
			else
				fprintf(out, "%06o %lu %8lld %s\n", st->st_mode,
					(unsigned long)st->st_nlink, (long long)st->st_size,
					e->fts_path + strlen(path));
		}
		fts_close(fts);
	}
	fclose(out);
	return text;
}

struct sandbox_used sandbox_used(const char *path)
{
	struct statfs fs;
	if (statfs(path, &fs) < 0)
		return (struct sandbox_used){0, 0};
	return (struct sandbox_used){(uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize,
				     fs.f_files - fs.f_ffree};
}

uint64_t sandbox_tier_blocks(const char *path)
{
	char root[4096];
	snprintf(root, sizeof(root), "%s", path);
	char *roots[] = {root, NULL};
	FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	uint64_t sum = 0;
	const FTSENT *e;
	while (fts && (e = fts_read(fts)))
		if (e->fts_info == FTS_F && e->fts_level == 3)
			sum += (uint64_t)e->fts_statp->st_blocks * 512;
	if (fts)
		fts_close(fts);
	return sum;
}

void sandbox_wipe(const char *path)
{
	char root[4096];
	snprintf(root, sizeof(root), "%s", path);
	char *roots[] = {root, NULL};
	FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	if (!fts)
		return;
	const FTSENT *e;
	while ((e = fts_read(fts))) {
		if (e->fts_level == 0 || e->fts_info == FTS_D)
			continue;
		if (e->fts_info == FTS_DP)
			rmdir(e->fts_path);
		else
			unlink(e->fts_path);
	}
	fts_close(fts);
}
