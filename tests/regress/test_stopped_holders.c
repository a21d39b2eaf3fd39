/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another process is stopped just while it holds what a call needs. Within a file lease (it asked
 * whether the file is unused): get waited for 14 s, and ended in -EIO. Within the names of a store:
 * threads that put waited one after the other, 5 s each, and gets behind them. Now each waits for a
 * second, all together, and ends in -ETIMEDOUT.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api.h"
#include "tiered.h"

#define PUTTERS 8
#define SOON_MS 4000u /* one second, and what a loaded host adds */

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static bool take_lease(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd >= 0 && fcntl(fd, F_SETSIG, SIGURG) == 0 && fcntl(fd, F_SETLEASE, F_WRLCK) == 0;
}

static bool take_names(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd >= 0 && flock(fd, LOCK_EX) == 0;
}

/* A process that has taken it, and is stopped. */
static pid_t stopped_with(bool (*take)(const char *path), const char *path)
{
	int status;
	pid_t pid = fork();

	cr_assert_geq(pid, 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!take(path))
			_exit(1);
		raise(SIGSTOP);
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &status, WUNTRACED), pid);
	cr_assert(WIFSTOPPED(status), "it could not take %s", path);
	return pid;
}

static void let_go(pid_t pid)
{
	kill(pid, SIGKILL);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
}

Test(stopped_holders, of_a_file_lease, .timeout = 120)
{
	struct shmstore_view *v = NULL;
	struct shmstore_ticket t;
	uint64_t from;
	char path[600];

	scratch_dir("size=64m");
	struct shmstore *s = scratch_store("s");
	struct shmstore_options off = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *plain;

	off.recycle_max = 0;
	cr_assert_eq(shmstore_open(p, "plain", &off, &plain), 0);
	cr_assert_eq(put_pattern(plain, "k", 5000, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(plain, KEY("k"), 60000, &t), 0);
	snprintf(path, sizeof(path), "%s/objects/k", shmstore_path(plain));
	pid_t pid = stopped_with(take_lease, path);
	from = now_ms();
	cr_expect_eq(shmstore_get(plain, KEY("k"), 0, &v), -ETIMEDOUT);
	cr_expect_lt(now_ms() - from, SOON_MS, "%lu ms", (unsigned long)(now_ms() - from));
	from = now_ms();
	cr_expect_eq(shmstore_adopt(s, KEY("k"), &t, 0), -ETIMEDOUT);
	cr_expect_lt(now_ms() - from, SOON_MS, "%lu ms", (unsigned long)(now_ms() - from));
	let_go(pid);
	cr_expect_eq(get_pattern(plain, "k", 5000, 1), 0);
	cr_expect_eq(shmstore_adopt(s, KEY("k"), &t, 0), 0);
	cr_assert_eq(shmstore_close(plain), 0);
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
	ensure_nothing_left();
}

struct putter {
	struct shmstore *s;
	int number, result;
	pthread_t thread;
};

static void *puts_one(void *arg)
{
	struct putter *p = arg;
	char key[8];

	snprintf(key, sizeof(key), "p%d", p->number);
	p->result = put_pattern(p->s, key, 5000, 1, 0);
	return NULL;
}

Test(stopped_holders, of_the_names_of_a_store, .timeout = 120)
{
	struct shmstore_tier_config c = SHMSTORE_TIER_CONFIG_INIT;
	struct putter putters[PUTTERS];
	uint64_t from, longest = 0;
	char path[600];

	if (!tiered_begin(&c))
		cr_skip_test("no disk");
	struct shmstore *s = scratch_store("s");

	cr_assert_eq(put_pattern(s, "k", 5000, 1, 0), 0);
	snprintf(path, sizeof(path), "%s/objects", shmstore_path(s));
	pid_t pid = stopped_with(take_names, path);
	from = now_ms();
	for (int i = 0; i < PUTTERS; i++) {
		putters[i] = (struct putter){.s = s, .number = i};
		cr_assert_eq(pthread_create(&putters[i].thread, NULL, puts_one, &putters[i]), 0);
	}
	/* A get does not change names. */
	for (int i = 0; i < 100; i++) {
		uint64_t begin = now_ms();

		cr_expect_eq(get_pattern(s, "k", 5000, 1), 0);
		longest = now_ms() - begin > longest ? now_ms() - begin : longest;
	}
	cr_expect_lt(longest, 900, "a get took %lu ms", (unsigned long)longest);
	for (int i = 0; i < PUTTERS; i++) {
		pthread_join(putters[i].thread, NULL);
		cr_expect_eq(putters[i].result, -ETIMEDOUT, "%d: %d", i, putters[i].result);
	}
	cr_expect_lt(now_ms() - from, SOON_MS, "%d puts: %lu ms", PUTTERS,
		     (unsigned long)(now_ms() - from));
	cr_expect_eq(shmstore_delete(s, KEY("k")), -ETIMEDOUT);
	cr_expect_eq(get_pattern(s, "k", 5000, 1), 0, "deleted all the same");
	from = now_ms();
	cr_expect_eq(shmstore_close(s), -ETIMEDOUT);
	cr_expect_lt(now_ms() - from, SOON_MS, "close: %lu ms", (unsigned long)(now_ms() - from));
	let_go(pid);
	ensure_nothing_left();
}
