/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_tracer.c: the tracer does what the crash and fault tests believe. The child writes one byte
 * of a pipe per system call, so what was executed can be counted from outside: killed before call n
 * leaves n - 1 bytes, killed after it n.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tracer.h"

#define N_WRITES 5u

static unsigned passed, failed;
static struct tracer_result result;

static void check(bool ok, const char *what, unsigned n)
{
	if (ok) {
		passed++;
	} else {
		failed++;
		printf("FAIL %s (n = %u)\n", what, n);
	}
}

/* Exit status of the child: how many of its writes failed with EIO, plus 32 if
 * one failed in another way. */
static void child(const struct tracer_plan *plan, int fd)
{
	if (tracer_child(plan) < 0)
		_exit(99);
	syscall(SYS_write, fd, "s", 1); /* not counted */
	int n_eio = 0;
	tracer_begin();
	if (plan->turn)
		syscall(SYS_getppid); /* counted, and not aimed at */
	for (unsigned i = 0; i < N_WRITES; i++) {
		long rc = syscall(SYS_write, fd, "x", 1);
		if (rc < 0)
			n_eio += errno == EIO ? 1 : 32;
	}
	tracer_end();
	syscall(SYS_write, fd, "e", 1); /* not counted */
	_exit(n_eio);
}

static ssize_t run_plan(const struct tracer_plan *plan)
{
	int fds[2];
	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		exit(2);
	pid_t pid = fork();
	if (pid < 0)
		exit(2);
	if (pid == 0)
		child(plan, fds[1]);
	if (tracer_run(pid, plan, 10000, &result) < 0)
		exit(2);
	char bytes[64];
	ssize_t got = read(fds[0], bytes, sizeof(bytes));
	close(fds[0]);
	close(fds[1]);
	return got;
}

/* Stops at each call; or, aimed at the same one, at calls of its number alone. */
static bool aimed;

static ssize_t run(enum tracer_mode mode, unsigned n)
{
	struct tracer_plan plan = {.mode = mode, .n = n, .error = EIO};

	if (aimed) {
		plan.n = n + 1;
		plan.nr = SYS_write;
		plan.turn = n;
	}
	return run_plan(&plan);
}

static bool killed(void)
{
	return WIFSIGNALED(result.status) && WTERMSIG(result.status) == SIGKILL;
}

static bool exited(int status)
{
	return WIFEXITED(result.status) && WEXITSTATUS(result.status) == status;
}

/* Stopped for good, between the marks. */
static int run_forever(void)
{
	pid_t pid = fork();
	if (pid < 0)
		exit(2);
	if (pid == 0) {
		if (tracer_child(NULL) < 0)
			_exit(99);
		tracer_begin();
		for (;;)
			pause();
	}
	const struct tracer_plan plan = {.mode = TRACER_COUNT};
	return tracer_run(pid, &plan, 100, &result);
}

static void for_each_call(void)
{
	ssize_t got;

	for (unsigned n = 1; n <= N_WRITES + 1; n++) {
		bool inside = n <= N_WRITES;
		got = run(TRACER_KILL_BEFORE, n);
		check(inside ? got == (ssize_t)n && killed() && result.reached && !result.ended
			     : got == N_WRITES + 2 && exited(0) && !result.reached && result.ended,
		      "kill before", n);
		got = run(TRACER_KILL_AFTER, n);
		check(inside ? got == (ssize_t)n + 1 && killed() && result.reached
			     : got == N_WRITES + 2 && exited(0) && !result.reached,
		      "kill after", n);
		got = run(TRACER_FAIL, n);
		check(inside ? got == N_WRITES + 1 && exited(1) : got == N_WRITES + 2 && exited(0),
		      "fail", n);
		got = run(TRACER_FAIL_DONE, n);
		check(inside ? got == N_WRITES + 2 && exited(1) : got == N_WRITES + 2 && exited(0),
		      "fail, done", n);
		got = run(TRACER_FAIL_ALL, n);
		check(got == (ssize_t)n + 1 && exited((int)(N_WRITES - n + 1)), "fail from here on",
		      n);
	}
}

/* The calls that the mark itself makes are not the child's. */
static void check_first_call(void)
{
	const struct tracer_plan plan = {
		.mode = TRACER_KILL_BEFORE, .n = 1, .nr = SYS_getpid, .turn = 1};
	pid_t pid = fork();
	if (pid < 0)
		exit(2);
	if (pid == 0) {
		if (tracer_child(&plan) < 0)
			_exit(99);
		tracer_begin();
		syscall(SYS_getpid);
		tracer_end();
		_exit(0);
	}
	check(tracer_run(pid, &plan, 10000, &result) == 0 && killed() && result.reached,
	      "aim at getpid", 1);
}

/* Of what was counted, the turn of call n among those of its number; none
 * where it starts processes. */
static void check_aim(void)
{
	struct tracer_call calls[] = {
		{.nr = SYS_write}, {.nr = SYS_getppid}, {.nr = SYS_write}, {.nr = SYS_write}};
	struct tracer_plan plan = {.mode = TRACER_FAIL, .n = 3};

	tracer_aim(&plan, calls, 4);
	check(plan.nr == SYS_write && plan.turn == 2, "aim", 3);
	plan = (struct tracer_plan){.mode = TRACER_FAIL, .n = 5};
	tracer_aim(&plan, calls, 4);
	check(plan.turn == 0, "no aim at a call that did not come", 5);
	calls[1].nr = SYS_clone;
	plan.n = 3;
	tracer_aim(&plan, calls, 4);
	check(plan.turn == 0, "no aim where there are others", 3);
}

int main(void)
{
	int rc = tracer_supported();
	if (rc < 0) {
		printf("SKIP ptrace does not work here (%d)\n", rc);
		return 77;
	}
	ssize_t got = run(TRACER_COUNT, 0);
	check(got == N_WRITES + 2 && result.n_calls == N_WRITES && result.ended &&
		      !result.reached && exited(0),
	      "count", 0);
	check(result.calls[0].nr == SYS_write && result.calls[0].result == 1, "record", 0);
	for_each_call();
	aimed = true;
	for_each_call();
	check_first_call();
	check_aim();
	check(run_forever() == -ETIMEDOUT && killed(), "what takes too long is killed", 0);
	printf("tracer: %u passed, %u failed\n", passed, failed);
	return failed ? 1 : 0;
}
