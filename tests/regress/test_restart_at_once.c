/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A supervisor that started a program again at once after kill -9 found its store held (-EBUSY), as
 * often as one time in ten: the killed process was still being taken apart, and its lock with it.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"

#define ROUNDS 60
#define MIB    (1u << 20)

/* Has memory, which the kernel takes apart before it gives the lock up. */
static pid_t start(int ready)
{
	pid_t pid = fork_bound(110);
	struct shmstore *s;
	char *memory;
	int r;

	if (pid)
		return pid;
	memory = malloc(32 * MIB);
	ENSURE(memory);
	memset(memory, 1, 32 * MIB);
	r = shmstore_open(scratch_partition(), "svc", NULL, &s);
	if (r < 0)
		fprintf(stderr, "%s: %s\n", shmstore_strerror(r), shmstore_error_detail());
	ENSURE(write(ready, r == 0 ? "y" : "n", 1) == 1);
	for (;;)
		pause();
}

Test(restart_at_once, finds_the_store_free, .timeout = 120)
{
	int ready[2];
	pid_t last = 0;

	scratch_partition();
	ENSURE(pipe(ready) == 0);
	for (unsigned i = 0; i < ROUNDS; i++) {
		pid_t pid = start(ready[1]);
		char says;

		ENSURE(read(ready[0], &says, 1) == 1);
		cr_assert_eq(says, 'y', "start %u", i);
		kill(pid, SIGKILL);
		/* A supervisor that is told late leaves a zombie for one round. */
		if (last)
			cr_assert_eq(waitpid(last, NULL, 0), last);
		last = pid;
	}
	cr_assert_eq(waitpid(last, NULL, 0), last);
}

Test(restart_at_once, a_live_owner_is_told_of_soon)
{
	int ready[2];
	struct shmstore *s;
	pid_t pid;
	char says;

	scratch_partition();
	ENSURE(pipe(ready) == 0);
	pid = start(ready[1]);
	ENSURE(read(ready[0], &says, 1) == 1);
	cr_assert_eq(shmstore_open(scratch_partition(), "svc", NULL, &s), -EBUSY);
	cr_assert_not_null(strstr(shmstore_error_detail(), "the live process"));
	kill(pid, SIGKILL);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
}
