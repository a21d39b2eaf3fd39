/* SPDX-License-Identifier: Apache-2.0 */
/* shms_dying(): who was killed and is not gone yet, as a daemon is whose
 * threads get no processor to end. */
#include <criterion/criterion.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process.h"

static pid_t sleeper(void)
{
	pid_t pid = fork();

	cr_assert_geq(pid, 0);
	if (pid == 0) {
		for (;;)
			pause();
	}
	return pid;
}

Test(dying, nobody_who_lives)
{
	pid_t pid = sleeper();

	cr_assert(!shms_dying(getpid()));
	cr_assert(!shms_dying(pid));
	kill(pid, SIGSTOP);
	cr_assert_eq(waitpid(pid, NULL, WUNTRACED), pid);
	cr_assert(!shms_dying(pid), "one that is stopped may go on");
	kill(pid, SIGKILL);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
}

Test(dying, one_that_was_killed_until_it_is_gone)
{
	pid_t pid = sleeper();
	siginfo_t info;

	kill(pid, SIGKILL);
	cr_assert_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	cr_assert(shms_dying(pid));
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
	cr_assert(!shms_dying(pid));
}

Test(dying, not_where_it_cannot_be_known)
{
	cr_assert(!shms_dying(0));
	cr_assert(!shms_dying(-1));
}
