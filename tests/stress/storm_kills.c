/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storm_kills.c: workers that are killed at random instructions, over and over: by the kernel's
 * timer, six at a time; or after a random number of instructions, one at a time. Two workers live
 * on all the time, who hold what the dead gave them, give them more, and collect what they left.
 * The book of keys (storm.h) says what must be there afterwards, and each next worker of a store
 * looks.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "killing.h"
#include "storm_run.h"

#define SURVIVORS  2u
#define LATEST_NS  12000000u /* after its begin a worker is killed */
#define WARM       60u       /* at most so many operations come before its steps are counted */
#define BOOKS_EACH 1000u     /* kills */

static unsigned who(const struct run *r, pid_t pid)
{
	unsigned i = 0;

	while (i < STORM_WORKERS && r->pids[i] != pid)
		i++;
	return i;
}

static void by_time(struct run *r)
{
	int status;
	pid_t pid = waitpid(-1, &status, 0);
	unsigned i = who(r, pid);

	if (pid < 0 && errno != EINTR)
		storm_fail(&r->st, "waitpid: %s", strerror(errno));
	if (i == STORM_WORKERS)
		return; /* a child that a worker left */
	if (i < SURVIVORS || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
		storm_fail(&r->st, "worker %u ended with status 0x%x", i, (unsigned)status);
		return;
	}
	r->n_kills++;
	storm_start(r, i, 1 + storm_pick(r, LATEST_NS));
}

static void by_steps(struct run *r)
{
	unsigned i = SURVIVORS + storm_pick(r, STORM_WORKERS - SURVIVORS);
	int status = 0;

	r->st.wait_after = 1 + storm_pick(r, WARM);
	storm_start(r, i, 0);
	r->st.wait_after = 0;
	if (!killing_by_steps(r->pids[i], storm_pick(r, KILLING_STEPS), &status))
		storm_fail(&r->st, "worker %u: status 0x%x", i, (unsigned)status);
	else if (waitpid(r->pids[i], &status, 0) != r->pids[i] || !WIFSIGNALED(status))
		storm_fail(&r->st, "worker %u ended with status 0x%x", i, (unsigned)status);
	r->n_kills++;
	r->pids[i] = 0;
}

void storm_kill_many(struct run *r)
{
	const struct storm_options *o = r->options;
	uint64_t books_at = BOOKS_EACH;

	for (unsigned i = 0; i < STORM_WORKERS && !(o->steps && i >= SURVIVORS); i++)
		storm_start(r, i, i < SURVIVORS ? 0 : 1 + storm_pick(r, LATEST_NS));
	while (r->n_kills < o->n_kills && !r->st.shared->failed) {
		if (o->steps)
			by_steps(r);
		else
			by_time(r);
		if (r->n_kills >= books_at) {
			storm_stand_still(r);
			books_at += BOOKS_EACH;
		}
	}
	/* The last ones end as those of any storm. */
	for (unsigned i = SURVIVORS; i < STORM_WORKERS; i++) {
		int status;

		if (r->pids[i] > 0) {
			kill(r->pids[i], SIGKILL);
			while (waitpid(r->pids[i], &status, 0) < 0 && errno == EINTR)
				continue;
		}
		storm_start(r, i, 0);
	}
}
