/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that was started again and again after kill -9 died of a full partition:
 * tickets of its predecessors kept memory for the rest of their leases, no error said so,
 * and no command gave it back.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <shmstore/inspect.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"

#define SIZE (10u << 20)

/* Hands off what it puts, deletes it, and is killed. */
static int serve(void *arg)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_ticket ticket;
	struct shmstore *s;
	char key[16];

	o.recycle_max = 0;
	o.pack_max = *(const uint64_t *)arg;
	ENSURE(shmstore_open(scratch_partition(), "service", &o, &s) == 0);
	for (unsigned i = 0; i < 2; i++) {
		snprintf(key, sizeof(key), "m%u", i);
		if (put_pattern(s, key, SIZE, i, 0) < 0)
			return 1;
		ENSURE(shmstore_handoff(s, KEY(key), 600000, &ticket) == 0);
		ENSURE(shmstore_delete(s, KEY(key)) == 0);
	}
	kill(getpid(), SIGKILL);
	return 2;
}

static bool served(uint64_t pack_max)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(serve(&pack_max));
	ENSURE(waitpid(pid, &status, 0) == pid);
	return WIFSIGNALED(status);
}

static uint64_t linked(void)
{
	struct shmstore_usage u;

	cr_assert_eq(shmstore_partition_usage(scratch_partition(), 0, &u), 0);
	return u.linked;
}

Test(dead_leases, the_next_owner_of_the_name_ends_them)
{
	scratch_dir("size=64m,mode=700");
	if (!scratch_is_mount())
		cr_skip_test("needs root\n");
	for (unsigned i = 0; i < 8; i++)
		cr_assert(served(0), "start %u", i);
	/* Of the last starts, which fit beside each other. */
	cr_assert_gt(linked(), SIZE);
}

Test(dead_leases, others_are_told_and_gc_ends_them)
{
	struct shmstore *s;

	scratch_dir("size=32m,mode=700");
	if (!scratch_is_mount())
		cr_skip_test("needs root\n");
	cr_assert(served(0));
	s = scratch_plain_store("other");
	cr_assert_eq(put_pattern(s, "k", SIZE * 2, 1, 0), -ENOSPC);
	cr_assert_not_null(
		strstr(shmstore_error_detail(), "20 MiB are leased by dead stores until "), "%s",
		shmstore_error_detail());
	/* A gc that was not asked to leaves them. */
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, NULL), 0);
	cr_assert_gt(linked(), SIZE);
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), SHMSTORE_GC_LEASES, NULL), 0);
	cr_assert_lt(linked(), SIZE);
	cr_assert_eq(put_pattern(s, "k", SIZE * 2, 1, 0), 0);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(dead_leases, of_packed_objects_go_too)
{
	if (!scratch_is_mount() && !scratch_dir(NULL))
		cr_skip_test("needs a place\n");
	cr_assert(served(16u << 20));
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, NULL), 0);
	cr_assert_gt(linked(), SIZE);
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), SHMSTORE_GC_LEASES, NULL), 0);
	cr_assert_lt(linked(), SIZE);
}
