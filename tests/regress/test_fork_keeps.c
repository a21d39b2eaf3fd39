/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child that was forked while another thread was inside a call, and did not exec, kept what that
 * call had open: the memory of whole objects, the lock of a dead store's page. Here children are
 * forked all the time while threads do everything; none may have a regular file of the partition
 * open, nor one mapped to be written.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"

enum {
	FORKS = 400,
	THREADS = 6,
	MOST_FDS = 512, /* the threads have fewer than a hundred open */
	LARGE = 300000
};

static struct shmstore_partition *p;
static struct shmstore *s;
static atomic_bool stop;
static dev_t device;

/* One line of text to stderr, by one call of the kernel. */
static void say(const char *what, const char *which)
{
	char line[1100];
	size_t n = 0;

	for (; *what && n < sizeof(line) - 1; what++)
		line[n++] = *what;
	for (; *which && *which != '\n' && n < sizeof(line) - 1; which++)
		line[n++] = *which;
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, n) < 0)
		abort();
}

static int descriptors_kept(void)
{
	static char path[64], file[1024];
	struct rlimit most;
	struct stat st;
	int n = 0;

	ENSURE(getrlimit(RLIMIT_NOFILE, &most) == 0);
	for (int fd = 0; fd < (int)most.rlim_cur && fd < MOST_FDS; fd++) {
		if (fstat(fd, &st) < 0 || st.st_dev != device || !S_ISREG(st.st_mode))
			continue;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		ssize_t length = readlink(path, file, sizeof(file) - 1);
		file[length > 0 ? length : 0] = '\0';
		say("kept: a descriptor of ", file);
		n++;
	}
	return n;
}

/* A line of /proc/self/maps: is the mapping one of the partition, to be written? */
static bool writable_of_ours(const char *line)
{
	const char *perms = strchr(line, ' ');

	return perms && perms[1] && perms[2] == 'w' && strstr(line, scratch_partition_path());
}

static int mappings_kept(void)
{
	static char text[65536 + 1];
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), n = 0;
	size_t have = 0;
	ssize_t got;

	ENSURE(fd >= 0);
	while ((got = read(fd, text + have, sizeof(text) - 1 - have)) > 0) {
		char *line = text, *end;

		have += (size_t)got;
		text[have] = '\0';
		for (; (end = strchr(line, '\n')) != NULL; line = end + 1) {
			*end = '\0';
			if (writable_of_ours(line)) {
				say("kept: ", line);
				n++;
			}
		}
		have = (size_t)(text + have - line);
		memmove(text, line, have);
	}
	ENSURE(got == 0);
	close(fd);
	return n;
}

/* Counts the descriptors and mappings of the partition that must not be here.
 * Allocates nothing (scratch.h). */
static int n_kept(void)
{
	return descriptors_kept() + mappings_kept();
}

static void *puts_and_deletes(void *arg)
{
	static atomic_uint n_threads;
	unsigned me = atomic_fetch_add(&n_threads, 1);
	char key[32];

	(void)arg;

	for (unsigned i = 0; !stop; i++) {
		snprintf(key, sizeof(key), "%u-%u", me, i % 4);
		ENSURE(put_pattern(s, key, LARGE, i, SHMSTORE_REPLACE) == 0);
		if (i % 3 == 0)
			ENSURE(shmstore_delete(s, KEY(key)) == 0);
	}
	return NULL;
}

static void *gets(void *arg)
{
	(void)arg;
	while (!stop)
		ENSURE(get_pattern(s, "k", LARGE, 1) == 0);
	return NULL;
}

static void *hands_over(void *arg)
{
	struct shmstore_ticket t;

	(void)arg;
	while (!stop) {
		ENSURE(shmstore_handoff(s, KEY("k"), 60000, &t) == 0);
		ENSURE(shmstore_adopt(s, KEY("adopted"), &t, SHMSTORE_REPLACE | SHMSTORE_VERIFY) ==
		       0);
	}
	return NULL;
}

static void *makes(void *arg)
{
	struct shmstore_writer *w;
	uint64_t size = LARGE;

	(void)arg;
	for (unsigned i = 0; !stop; i++) {
		if (i % 2) {
			ENSURE(seal_pattern(s, "made", LARGE, i, SHMSTORE_REPLACE) == 0);
			continue;
		}
		ENSURE(shmstore_create(s, KEY("not made"), 8, &size, 1, 0, &w) == 0);
		shmstore_abort(w);
	}
	return NULL;
}

static void *collects(void *arg)
{
	struct shmstore_usage usage;

	(void)arg;
	while (!stop) {
		ENSURE(shmstore_partition_gc(p, 0, NULL) == 0);
		ENSURE(shmstore_partition_usage(p, 0, &usage) == 0);
	}
	return NULL;
}

static int die(void *arg)
{
	struct shmstore *dead;
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;

	(void)arg;
	o.keep = true;
	ENSURE(shmstore_open(p, "dead", &o, &dead) == 0);
	ENSURE(put_pattern(dead, "x", 100, 1, 0) == 0);
	_exit(0);
}

static void begin(void)
{
	struct stat st;

	p = scratch_partition();
	cr_assert(stat(scratch_partition_path(), &st) == 0);
	device = st.st_dev;
	cr_assert_eq(in_child(die, NULL), 0);
}

static int child(pid_t pid)
{
	int status;

	cr_assert_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

Test(fork_keeps, nothing_of_what_others_were_at, .timeout = 240)
{
	static void *(*const work[THREADS])(void *) = {
		puts_and_deletes, puts_and_deletes, gets, hands_over, makes, collects};
	pthread_t threads[THREADS];

	begin();
	s = scratch_store("s");
	cr_assert_eq(put_pattern(s, "k", LARGE, 1, SHMSTORE_CHECKSUM), 0);
	for (int i = 0; i < THREADS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, work[i], NULL), 0);
	for (unsigned i = 0; i < n_rounds(FORKS); i++) {
		pid_t pid = fork_bound(60);

		if (pid == 0)
			_exit(n_kept() ? 1 : 0);
		cr_assert_eq(child(pid), 0, "fork %u", i);
	}
	stop = true;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	cr_assert_eq(shmstore_close(s), 0);
}

/* Out of a callback: the child has nothing, and comes back out of the call without harm. */
static int fork_here(const struct shmstore_gc_action *action, void *arg)
{
	pid_t pid = fork_bound(60);

	(void)action;
	if (pid == 0 && n_kept())
		_exit(2);
	*(pid_t *)arg = pid;
	return 0;
}

Test(fork_keeps, nothing_out_of_a_callback, .timeout = 60)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	pid_t self = getpid(), pid = -1;
	int fd;

	begin();
	cr_assert_eq(shmstore_partition_gc_plan(p, 0, fork_here, &pid, NULL), 0);
	if (getpid() != self)
		_exit(0);
	cr_assert_gt(pid, 0, "the callback was called");
	cr_assert_eq(child(pid), 0);
	fd = open(scratch_store_path("dead", ".store"), O_RDONLY | O_CLOEXEC);
	cr_assert_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
	close(fd);
	o.keep = true;
	cr_assert_eq(shmstore_open(p, "dead", &o, &s), 0);
	cr_assert_eq(get_pattern(s, "x", 100, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
}
