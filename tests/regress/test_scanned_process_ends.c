/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process ended between the moment when shmstore_partition_usage() opened its /proc/PID/fd and
 * the moment when it listed that directory. fdopendir() looks at the directory with fstat(), which
 * since Linux 6.2 counts the open files there, and says ENOENT of a process that was reaped. That
 * was taken for a failed allocation: the call returned -ENOMEM.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "interpose.h"

static pid_t victim;

static bool lists_victim(int fd)
{
	char link[64], path[256] = "", wanted[64];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	snprintf(wanted, sizeof(wanted), "/proc/%d/fd", (int)victim);
	return readlink(link, path, sizeof(path) - 1) > 0 && strcmp(path, wanted) == 0;
}

static void end_victim(void)
{
	kill(victim, SIGKILL);
	waitpid(victim, NULL, 0);
	victim = 0;
}

DIR *fdopendir(int fd)
{
	typedef DIR *fn(int);

	if (victim && lists_victim(fd))
		end_victim();
	return NEXT(fn *, "fdopendir")(fd);
}

Test(scanned_process_ends, is_no_failure_of_the_scan)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_usage u;
	pid_t pid = fork();

	cr_assert_geq(pid, 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	victim = pid;
	cr_assert_eq(shmstore_partition_usage(p, SHMSTORE_USAGE_FULL, &u), 0);
	cr_assert_eq(victim, 0, "its descriptors were not listed");
	shmstore_partition_unref(p);
}
