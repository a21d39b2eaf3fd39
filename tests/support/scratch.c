/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scratch.c: see scratch.h. The mount lives in a mount namespace that only this process and its
 * children see: nothing has to be unmounted, also after SIGKILL. It covers /mnt, so that no mount
 * point has to be made either. A directory that is not ours to clean up (in /dev/shm, of a killed
 * test of an ordinary user) is named by pid, and tests/run removes it.
 */
#include "scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sys.h"

/* Read by LeakSanitizer: criterion 2.4.1 itself loses a few bytes when a test forks. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:libcriterion.so\nleak:libboxfort\nleak:libnanomsg\n";
}

/* Tests look into objects/: they speak of files, unless ctest runs them a second time for packed
 * objects (tests/CMakeLists.txt). */
__attribute__((constructor)) static void make_files(void)
{
	setenv("SHMSTORE_PACK_MAX", "0", 0);
}

static char dir[SCRATCH_PATH];
static bool mounted;
static pid_t owner;
static struct shmstore_partition *partition;

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	remove(path);
	return 0;
}

static void clean(void)
{
	if (dir[0] && !mounted && getpid() == owner)
		nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *scratch_dir(const char *options)
{
	if (dir[0])
		return dir;
	owner = getpid();
	if (geteuid() == 0 && unshare(CLONE_NEWNS) == 0 &&
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	    mount("tmpfs", "/mnt", "tmpfs", 0, options ? options : "size=512m") == 0) {
		mounted = true;
		snprintf(dir, sizeof(dir), "/mnt");
		return dir;
	}
	snprintf(dir, sizeof(dir), "/dev/shm/shmstore-test-%d", (int)getpid());
	ENSURE(mkdir(dir, 0700) == 0);
	atexit(clean);
	return dir;
}

const char *scratch_second_mount(const char *name)
{
	static char path[SCRATCH_PATH + 64];

	scratch_dir(NULL);
	if (!mounted)
		return NULL;
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	ENSURE(mkdir(path, 0700) == 0);
	ENSURE(mount("tmpfs", path, "tmpfs", 0, "size=64m") == 0);
	return path;
}

bool scratch_is_mount(void)
{
	scratch_dir(NULL);
	return mounted;
}

const char *scratch_partition_path(void)
{
	static char path[SCRATCH_PATH + 8];

	snprintf(path, sizeof(path), "%s/part", scratch_dir(NULL));
	return path;
}

struct shmstore_partition *scratch_partition(void)
{
	if (!partition) {
		int r = shmstore_partition_open(scratch_partition_path(), SHMSTORE_CREATE,
						&partition);

		if (r < 0)
			fprintf(stderr, "cannot make a partition in %s: %s\n",
				scratch_partition_path(), shmstore_strerror(r));
		ENSURE(r == 0);
	}
	return shmstore_partition_ref(partition);
}

static struct shmstore *open_store(const char *name, const struct shmstore_options *o)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s = NULL;
	int r = shmstore_open(p, name, o, &s);

	if (r < 0)
		fprintf(stderr, "cannot open store %s: %s\n", name, shmstore_strerror(r));
	ENSURE(r == 0);
	shmstore_partition_unref(p);
	return s;
}

struct shmstore *scratch_store(const char *name)
{
	return open_store(name, NULL);
}

struct shmstore *scratch_plain_store(const char *name)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;

	o.recycle_max = 0;
	return open_store(name, &o);
}

const char *scratch_store_path(const char *store, const char *rest)
{
	static char paths[8][SCRATCH_PATH + 600];
	static unsigned n;
	char *path = paths[n++ % 8];

	snprintf(path, sizeof(paths[0]), "%s/stores/%s%s%s", scratch_partition_path(), store,
		 *rest ? "/" : "", rest);
	return path;
}

unsigned n_rounds(unsigned n)
{
	return SANITIZED && !getenv("SHMSTORE_TEST_ROUNDS") && n > 10 ? n / 10 : n;
}

pid_t fork_bound(unsigned seconds)
{
	pid_t parent = getpid(), pid = fork();

	if (pid == 0) {
		ENSURE(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
		if (getppid() != parent)
			raise(SIGKILL); /* the parent died before that */
		alarm(seconds);
	}
	return pid;
}

int in_child(int (*fn)(void *arg), void *arg)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork_bound(0);
	ENSURE(pid >= 0);
	if (pid == 0)
		_exit(fn(arg));
	while (waitpid(pid, &status, 0) < 0)
		ENSURE(errno == EINTR);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

pid_t child_that_stays(void (*fn)(void))
{
	int ready[2];
	char byte;
	pid_t pid;

	ENSURE(pipe(ready) == 0);
	pid = fork_bound(60);
	ENSURE(pid >= 0);
	if (pid == 0) {
		fn();
		ENSURE(write(ready[1], "", 1) == 1);
		for (;;)
			pause();
	}
	close(ready[1]);
	ENSURE(read(ready[0], &byte, 1) == 1);
	close(ready[0]);
	return pid;
}

int day_ahead(void *arg)
{
	static const char offsets[] = "boottime 86400 0\nmonotonic 86400 0\n";
	struct day_ahead *a = arg;
	int fd;

	/* Asked before: what is known of the clock must not be inherited. */
	shms_now_boot_ms();
	if (unshare(CLONE_NEWTIME) < 0)
		return 77;
	fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, offsets, sizeof(offsets) - 1) != sizeof(offsets) - 1)
		return 77;
	close(fd);
	return in_child(a->fn, a->arg);
}

bool wait_until(bool (*fn)(void *arg), void *arg, unsigned deadline_ms)
{
	struct timespec start, now;

	clock_gettime(CLOCK_MONOTONIC, &start);
	for (;;) {
		if (fn(arg))
			return true;
		clock_gettime(CLOCK_MONOTONIC, &now);
		if ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 >
		    (long)deadline_ms)
			return false;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
}

int count_dir(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;
	int n = 0;

	if (!d)
		return -errno;
	while ((e = readdir(d)) != NULL)
		n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
	closedir(d);
	return n;
}

int count_in_store(const char *store, const char *part)
{
	return count_dir(scratch_store_path(store, part));
}
