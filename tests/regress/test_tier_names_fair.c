/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that changed one name after the other left the lock of its store's names free for
 * microseconds only, and a process that moved one of the objects tried it now and then: in vain for
 * a second, after which it said that the lock's holder had been stopped. It says that it waits now,
 * and the thread lets it go first.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "api.h"
#include "nameslock.h"
#include "page.h"
#include "tier.h"
#include "tiered.h"

#define TIMES   25u
#define HELD_NS 2000000

static struct shmstore *s;
static _Atomic bool over;
static _Atomic unsigned n_held;

static void *hold(void *arg)
{
	int *ret = arg;

	while (!over && (*ret = shms_names_lock(s)) == 0) {
		nanosleep(&(struct timespec){.tv_nsec = HELD_NS}, NULL);
		n_held++;
		shms_names_unlock(s);
	}
	return NULL;
}

/* An open description of its own, as another process has it. */
static int open_names(void)
{
	int fd = open(scratch_store_path("s", "objects"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	cr_assert(fd >= 0);
	return fd;
}

Test(tier_names_fair, who_is_not_the_owner_gets_them_too)
{
	pthread_t thread;
	unsigned before;
	int r, fd;

	TIERED_OR_SKIP();
	s = scratch_store("s");
	cr_assert_eq(put_pattern(s, "k", 100000, 1, 0), 0);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0);
	fd = open_names();
	cr_assert_eq(pthread_create(&thread, NULL, hold, &r), 0);
	while (!n_held)
		usleep(1000);
	for (unsigned i = 0; i < TIMES; i++) {
		cr_assert_eq(shms_tier_lock_names(fd), 0, "%u: %s", i, shmstore_error_detail());
		before = n_held;
		usleep(1000);
		cr_assert_eq(n_held, before, "nobody else has them");
		shms_tier_unlock_names(fd);
	}
	/* The owner goes on, too. */
	before = n_held;
	while (n_held == before)
		usleep(1000);
	over = true;
	pthread_join(thread, NULL);
	cr_assert_eq(r, 0);
	close(fd);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

/* A waiter that said so and was killed does not come: the owner goes on after some milliseconds,
 * and forgets it. */
Test(tier_names_fair, who_waits_and_dies_is_forgotten)
{
	int fd;

	TIERED_OR_SKIP();
	s = scratch_store("s");
	cr_assert_eq(put_pattern(s, "k", 100000, 1, 0), 0);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0);
	fd = open_names();
	shms_move_ask(fd, true);
	cr_assert_eq(put_pattern(s, "l", 100000, 2, 0), 0, "%s", shmstore_error_detail());
	cr_assert_eq(s->page->names_asked, 0);
	close(fd);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}
