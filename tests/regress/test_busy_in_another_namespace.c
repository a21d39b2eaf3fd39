/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store is held by a process of another PID namespace, whose pid means nothing here: its owner
 * looked dead, and an open tried for 2.2 s, with a mkdir each 2 ms, before it said -EBUSY.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api.h"

#define LONGEST_MS 1600u

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Process 1 of a namespace of its own opens the store, says so, and holds it until it is killed. */
static pid_t holder(int tell)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (unshare(CLONE_NEWPID | CLONE_NEWNS) < 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		_exit(write(tell, "n", 1) != 1);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* The process finds in /proc what it says of itself as the owner. */
		if (mount("proc", "/proc", "proc", 0, NULL) < 0)
			_exit(write(tell, "n", 1) != 1);
		scratch_store("s");
		if (write(tell, "y", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	waitpid(pid, NULL, 0);
	_exit(0);
}

Test(busy_in_another_namespace, is_said_soon, .timeout = 60)
{
	struct shmstore_partition *p;
	struct shmstore *s = NULL;
	uint64_t from;
	int fds[2];
	char said = 0;

	scratch_dir("size=64m");
	p = scratch_partition();
	cr_assert_eq(pipe(fds), 0);
	pid_t pid = holder(fds[1]);
	cr_assert_eq(read(fds[0], &said, 1), 1);
	if (said == 'n')
		cr_skip_test("no PID namespace of one's own\n");
	from = now_ms();
	cr_expect_eq(shmstore_open(p, "s", NULL, &s), -EBUSY);
	cr_expect_lt(now_ms() - from, LONGEST_MS, "%lu ms", (unsigned long)(now_ms() - from));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	shmstore_partition_unref(p);
}
