/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock over a store's names preferred readers, and a handoff holds it shared over a link:
 * threads that handed off without a pause kept a put of another thread waiting for minutes.
 * Counted, not timed: how many handoffs come before a put's turn.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "api.h"

#define THREADS 16
#define PUTS    300
#define PASSED  20000u /* many times what is allowed: the lock is not all of a put */

static struct shmstore *s;
static atomic_bool stop;
static _Atomic unsigned n_passed, n_wrong;

static void *hands_off(void *arg)
{
	struct shmstore_ticket t;

	(void)arg;
	while (!atomic_load(&stop)) {
		if (shmstore_handoff(s, KEY("shared"), 60000, &t) == 0)
			unlink(t.path);
		else
			atomic_fetch_add(&n_wrong, 1);
		/* The starved put would never end otherwise. */
		if (atomic_fetch_add(&n_passed, 1) > PASSED)
			atomic_store(&stop, true);
	}
	return NULL;
}

static void *puts_own(void *arg)
{
	const char *key = arg;

	while (!atomic_load(&stop)) {
		if (put_pattern(s, key, 4096, 1, 0) != 0 || shmstore_delete(s, KEY(key)) != 0)
			atomic_fetch_add(&n_wrong, 1);
		if (atomic_fetch_add(&n_passed, 1) > PASSED)
			atomic_store(&stop, true);
	}
	return NULL;
}

static void start(pthread_t threads[THREADS], void *(*run)(void *), char keys[THREADS][8])
{
	for (int i = 0; i < THREADS; i++) {
		snprintf(keys[i], sizeof(keys[i]), "own-%d", i);
		cr_assert_eq(pthread_create(&threads[i], NULL, run, keys[i]), 0);
	}
}

static void end(pthread_t threads[THREADS])
{
	atomic_store(&stop, true);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	cr_assert_eq(n_wrong, 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(put_among_handoffs, its_turn_comes, .timeout = 300)
{
	pthread_t threads[THREADS];
	char keys[THREADS][8];

	scratch_dir("size=64m");
	s = scratch_store("s");
	cr_assert_eq(put_pattern(s, "shared", 4096, 1, 0), 0);
	start(threads, hands_off, keys);
	for (int i = 0; i < PUTS && !stop; i++) {
		atomic_store(&n_passed, 0);
		cr_assert_eq(put_pattern(s, "own", 4096, 1, 0), 0);
		cr_assert_eq(shmstore_delete(s, KEY("own")), 0);
		cr_expect_not(stop, "put %d waited for more than %u handoffs", i, PASSED);
	}
	end(threads);
}

Test(put_among_handoffs, and_that_of_a_get_among_puts, .timeout = 300)
{
	pthread_t threads[THREADS];
	char keys[THREADS][8];

	scratch_dir("size=64m");
	s = scratch_store("s");
	cr_assert_eq(put_pattern(s, "shared", 4096, 1, 0), 0);
	start(threads, puts_own, keys);
	for (int i = 0; i < PUTS && !stop; i++) {
		atomic_store(&n_passed, 0);
		cr_assert_eq(get_pattern(s, "shared", 4096, 1), 0);
		cr_expect_not(stop, "get %d waited for more than %u puts", i, PASSED);
	}
	end(threads);
}
