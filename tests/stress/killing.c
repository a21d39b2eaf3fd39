/* SPDX-License-Identifier: Apache-2.0 */
/* killing.c: see killing.h. */
#include "killing.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>

bool killing_after(uint64_t ns)
{
	struct itimerspec in = {.it_value = {.tv_nsec = (long)(ns ? ns : 1)}};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
	timer_t timer;

	return timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 &&
	       timer_settime(timer, 0, &in, NULL) == 0;
}

bool killing_wait(void)
{
	return ptrace(PTRACE_TRACEME, 0, 0, 0) == 0 && raise(SIGSTOP) == 0;
}

bool killing_by_steps(pid_t pid, uint64_t n, int *ret_status)
{
	int status;
	bool alive;

	if (waitpid(pid, &status, 0) != pid)
		return false;
	for (uint64_t i = 0; i < n && WIFSTOPPED(status); i++) {
		if (ptrace(PTRACE_SINGLESTEP, pid, 0, 0) < 0 || waitpid(pid, &status, 0) != pid)
			break;
		if (WIFSTOPPED(status) && WSTOPSIG(status) != SIGTRAP)
			break;
	}
	alive = WIFSTOPPED(status) && WSTOPSIG(status) != SIGSEGV && WSTOPSIG(status) != SIGBUS;
	*ret_status = status;
	if (WIFSTOPPED(status))
		kill(pid, SIGKILL);
	return alive;
}
