/* SPDX-License-Identifier: Apache-2.0 */
/* A pidfd only of the very process that is meant, and pids of other namespaces. */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "member.h"
#include "process.h"

static pid_t sleeper(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		for (;;)
			pause();
	}
	cr_assert_gt(pid, 0);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

Test(owner, pidfd_tells_the_end_of_its_process)
{
	pid_t pid = sleeper();
	int fd = owner_open(pid, shms_start_time(pid));
	struct pollfd p = {.fd = fd, .events = POLLIN};

	cr_assert_geq(fd, 0);
	cr_assert_eq(poll(&p, 1, 0), 0);
	kill(pid, SIGKILL);
	cr_assert_eq(poll(&p, 1, 10000), 1);
	waitpid(pid, NULL, 0);
	close(fd);
}

Test(owner, another_process_of_that_pid_is_not_taken)
{
	pid_t pid = sleeper();
	uint64_t start = shms_start_time(pid);

	cr_assert_eq(owner_open(pid, start + 1), -ESRCH);
	cr_assert_eq(owner_open(0, start), -ESRCH);
	cr_assert_eq(owner_open(-5, start), -ESRCH);
	end(pid);
	cr_assert_eq(owner_open(pid, start), -ESRCH);
}

Test(owner, a_pid_is_its_own)
{
	pid_t pid = sleeper();

	cr_assert(owner_is(pid, pid));
	cr_assert_not(owner_is(pid, getpid()));
	cr_assert_not(owner_is(0, 5));
	end(pid);
	cr_assert_not(owner_is(pid, getpid()));
}

Test(owner, a_pid_of_an_inner_namespace_is_known)
{
	int to[2];
	pid_t outer, inner;

	cr_assert_eq(pipe(to), 0);
	outer = fork();
	if (outer == 0) {
		if (unshare(CLONE_NEWPID) < 0)
			_exit(77);
		inner = fork();
		if (inner == 0) {
			close(to[1]);
			for (;;)
				pause();
		}
		_exit(write(to[1], &inner, sizeof(inner)) == sizeof(inner) ? 0 : 1);
	}
	close(to[1]);
	if (read(to[0], &inner, sizeof(inner)) != sizeof(inner))
		cr_skip_test("needs a pid namespace of its own (root)");
	waitpid(outer, NULL, 0);
	cr_assert(owner_is(inner, 1));
	cr_assert(owner_is(inner, inner));
	cr_assert_not(owner_is(inner, 2));
	kill(inner, SIGKILL);
	close(to[0]);
}
