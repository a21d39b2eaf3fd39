/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In a container, whose pid namespace does not show the process that holds a deleted object, the df
 * equation had a residual, and said that it had looked at every process.
 */
#include <criterion/criterion.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"

#define SIZE 1000000u
#define SKIP 77

static int look(void *arg)
{
	struct shmstore_usage u;

	(void)arg;
	if (mount("proc", "/proc", "proc", 0, NULL) < 0)
		return SKIP;
	ENSURE(shmstore_partition_usage(scratch_partition(), SHMSTORE_USAGE_FULL, &u) == 0);
	return u.residual >= (int64_t)SIZE && u.ghosts == 0 && u.n_unreadable > 0 ? 0 : 1;
}

static int contained(void *arg)
{
	if (unshare(CLONE_NEWPID | CLONE_NEWNS) < 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return SKIP;
	return in_child(look, arg);
}

/* Maps a deleted object, of which nothing is kept for recycling. */
static void hold(void)
{
	struct shmstore *s = packing_store("a", 0, false);
	struct shmstore_view *v;

	ENSURE(put_pattern(s, "x", SIZE, 1, 0) == 0 && shmstore_get(s, KEY("x"), 0, &v) == 0);
	ENSURE(shmstore_delete(s, KEY("x")) == 0);
}

Test(ghost_outside_the_container, is_said_to_be_unseen)
{
	pid_t holder;
	int r;

	scratch_dir("size=64m");
	if (!scratch_is_mount())
		cr_skip_test("needs a tmpfs of its own (root)");
	shmstore_partition_unref(scratch_partition());
	holder = child_that_stays(hold);
	r = in_child(contained, NULL);
	kill(holder, SIGKILL);
	waitpid(holder, NULL, 0);
	if (r == SKIP)
		cr_skip_test("needs root and its namespaces");
	cr_assert_eq(r, 0);
}
