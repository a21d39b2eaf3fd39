/* SPDX-License-Identifier: Apache-2.0 */
/* A put on a full partition: what it moves to the disk tier to make room,
 * and when it does not try. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "crowded.h"
#include "tiered.h"

Test(evict_put, put_on_a_full_partition_makes_room)
{
	struct shmstore *s;

	CROWDED_OR_SKIP(NULL);
	s = scratch_store("a");
	crowded_fill(s, 0, 3 * (unsigned)CROWDED_OF, 0);
	cr_assert_gt(tiered_count_files(), 2 * (int)CROWDED_OF);
	cr_assert(crowded_in_memory(s, 3 * (unsigned)CROWDED_OF - 1),
		  "the last one is the last to go");
	cr_assert_eq(seal_pattern(s, "sealed", 20 * MIB, 7, 0), 0, "%s", shmstore_error_detail());
	cr_assert_eq(get_pattern(s, "sealed", 20 * MIB, 7), 0);
	cr_assert_eq(shmstore_delete(s, KEY("sealed")), 0);
	crowded_finish(s, 0, 3 * (unsigned)CROWDED_OF);
}

Test(evict_put, no_evict_is_heard)
{
	struct shmstore *s;
	unsigned n;

	CROWDED_OR_SKIP(NULL);
	s = scratch_store("a");
	n = crowded_fill_up(s, 0, CROWDED_OF - 4);
	cr_assert_eq(seal_pattern(s, "sealed", CROWDED_SIZE, 7, SHMSTORE_NO_EVICT), -ENOSPC);
	cr_assert_eq(tiered_count_files(), 0);
	cr_assert_eq(crowded_count(s, 0, n), n);
	cr_assert_eq(put_pattern(s, nth(n), CROWDED_SIZE, n, 0), 0);
	crowded_finish(s, 0, n + 1);
}

Test(evict_put, what_cannot_help_is_not_tried)
{
	struct shmstore *s;
	unsigned n;

	CROWDED_OR_SKIP(NULL);
	s = scratch_store("a");
	crowded_fill(s, 1000, 8, 0);
	n = crowded_fill_up(s, SHMSTORE_PIN, CROWDED_OF - 12);
	cr_assert_eq(put_pattern(s, "larger than the partition", CROWDED_OF * MIB, 1, 0), -ENOSPC);
	cr_assert_eq(put_pattern(s, "larger than all that may go", 20 * MIB, 1, 0), -ENOSPC);
	cr_assert_eq(tiered_count_files(), 0, "nothing was demoted in vain");
	cr_assert_eq(put_pattern(s, "what can be had", 7 * MIB, 1, 0), 0);
	cr_assert_eq(crowded_count(s, 0, n), n);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

Test(evict_put, put_does_not_move_what_is_mapped)
{
	struct shmstore_view *views[CROWDED_OF];
	struct shmstore *s;
	unsigned n;

	CROWDED_OR_SKIP(NULL);
	s = scratch_store("a");
	n = crowded_fill_up(s, 0, CROWDED_OF - 4);
	for (unsigned i = 0; i < n; i++)
		views[i] = get_view(s, nth(i), 0);
	cr_assert_eq(put_pattern(s, "more", 3 * MIB, 1, 0), -ENOSPC, "it would free nothing");
	cr_assert_eq(crowded_count(s, 0, n), n);
	cr_assert_eq(tiered_count_files(), 0);
	for (unsigned i = 0; i < n; i++)
		shmstore_view_unref(views[i]);
	cr_assert_eq(put_pattern(s, "more", 3 * MIB, 1, 0), 0);
	crowded_finish(s, 0, n);
}

Test(evict_put, put_on_a_full_disk_says_so)
{
	struct shmstore_tier_config config = crowded_limit(3 * MIB + 3 * 16384);
	struct shmstore *s;
	unsigned n = 0;
	int r;

	CROWDED_OR_SKIP(&config);
	s = scratch_store("a");
	while ((r = put_pattern(s, nth(n), CROWDED_SIZE, n, 0)) == 0)
		n++;
	cr_assert_eq(r, -ENOSPC);
	cr_assert_gt(n, CROWDED_OF - 4 + 1, "what fits on both is taken");
	cr_assert_not_null(strstr(shmstore_error_detail(), "disk full"), "%s",
			   shmstore_error_detail());
	for (unsigned i = 0; i < n; i++)
		crowded_in_memory(s, i);
	/* Somebody gives up: it goes on. */
	for (unsigned i = n - 6; i < n; i++)
		cr_assert_eq(shmstore_delete(s, KEY(nth(i))), 0);
	cr_assert_eq(put_pattern(s, "again", CROWDED_SIZE, 5, 0), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

/* Another eviction, at idle priority or stopped, has the lock and does not go on. */
Test(evict_put, put_does_not_wait_for_ever_for_another_eviction)
{
	char path[SCRATCH_PATH + 64];
	struct shmstore_ticket t;
	struct shmstore *s;
	struct other o;
	unsigned n;
	int fd;

	CROWDED_OR_SKIP(NULL);
	s = scratch_store("a");
	o = other_start("b");
	crowded_fill(s, 1000, 1, 0);
	cr_assert_eq(shmstore_handoff(s, KEY("k1000"), 60000, &t), 0);
	cr_assert_eq(other_adopt(&o, "theirs", &t), 0);
	crowded_tick();
	n = crowded_fill_up(s, 0, CROWDED_OF - 5);
	cr_assert_eq(shmstore_demote(s, KEY("k0"), 0), 0, "which makes the lock's directory");
	snprintf(path, sizeof(path), "%s/tier/%u/lock", scratch_partition_path(),
		 (unsigned)geteuid());
	fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	cr_assert(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
	crowded_fill(s, n, 8, 0);
	cr_assert_lt(crowded_count(s, 0, n), n - 6);
	cr_assert(crowded_in_memory(s, 1000),
		  "the oldest, but its two names are the other one's business");
	close(fd);
	crowded_fill(s, n + 8, 8, 0);
	cr_assert_not(crowded_in_memory(s, 1000));
	cr_assert_eq(other_locate(&o, "theirs"), SHMSTORE_IN_TIER);
	cr_assert_eq(get_pattern(s, "k1000", CROWDED_SIZE, 1000), 0);
	cr_assert_eq(other_close(&o), 0);
	crowded_finish(s, 0, n + 16);
}

Test(evict_put, own_objects_go_first)
{
	struct shmstore *s;
	struct other o;
	unsigned n;

	CROWDED_OR_SKIP(NULL);
	o = other_start("b");
	for (unsigned i = 0; i < 20; i++)
		cr_assert_eq(other_put(&o, nth(i), CROWDED_SIZE, i), 0);
	crowded_tick();
	s = scratch_store("a");
	n = 100;
	while (put_pattern(s, nth(n), CROWDED_SIZE, n, SHMSTORE_NO_EVICT) == 0)
		n++;
	crowded_fill(s, n, 5, 0);
	cr_assert_lt(crowded_count(s, 100, n + 5 - 100), n + 5 - 100);
	for (unsigned i = 0; i < 20; i++)
		cr_assert_eq(other_locate(&o, nth(i)), SHMSTORE_IN_MEMORY,
			     "k%u is older, and not ours", i);
	/* With none of our own left it is the turn of the others. */
	for (unsigned i = 100; i < n + 5; i++)
		cr_assert_eq(shmstore_delete(s, KEY(nth(i))), 0);
	cr_assert_eq(put_pattern(s, "large", 58 * MIB, 1, 0), 0, "%s", shmstore_error_detail());
	cr_assert_eq(other_locate(&o, "k0"), SHMSTORE_IN_TIER);
	for (unsigned i = 0; i < 20; i++)
		cr_assert_eq(other_get(&o, nth(i), CROWDED_SIZE, i), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(other_close(&o), 0);
}

static int put_and_read(void *arg)
{
	struct shmstore *s = scratch_store(arg);
	unsigned base = (unsigned)(((const char *)arg)[0] * 1000);

	for (unsigned i = 0; i < CROWDED_OF; i++)
		if (put_pattern(s, nth(base + i), CROWDED_SIZE, base + i, 0) != 0)
			return 1;
	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < CROWDED_OF; i++)
			if (get_pattern(s, nth(base + i), CROWDED_SIZE, base + i) != 0)
				return 2;
	return shmstore_close(s) == 0 ? 0 : 3;
}

/* Three processes with three times what fits: all put, all read, each byte is right. */
Test(evict_put, several_processes_on_a_full_partition, .timeout = 120)
{
	static char names[3][2] = {"a", "b", "c"};
	pid_t pids[3];

	CROWDED_OR_SKIP(NULL);
	for (int i = 0; i < 3; i++) {
		pids[i] = fork();
		cr_assert_geq(pids[i], 0);
		if (pids[i] == 0)
			_exit(put_and_read(names[i]));
	}
	for (int i = 0; i < 3; i++) {
		int status;

		cr_assert_eq(waitpid(pids[i], &status, 0), pids[i]);
		cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "process %d: %x", i,
			  (unsigned)status);
	}
	ensure_nothing_left();
	ensure_tier_empty();
}
