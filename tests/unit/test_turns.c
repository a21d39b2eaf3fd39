/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>

#include "turns.h"

#define THREADS 8

static struct shms_turns turns;
static _Atomic unsigned n_begun, order[THREADS], n_done;

struct waiter {
	pthread_t thread;
	unsigned number;
	uint64_t ns;
	bool got;
};

static int count(void *arg)
{
	++*(unsigned *)arg;
	return 0;
}

static int enough(void *arg)
{
	return ++*(unsigned *)arg == 3;
}

static int begun(void *arg)
{
	struct waiter *w = arg;

	/* It waits: ticks come from within. */
	if (n_begun == w->number)
		n_begun++;
	return 0;
}

static void *wait_and_pass(void *arg)
{
	struct waiter *w = arg;

	w->got = shms_turns_take(&turns, w->ns, begun, w);
	if (!w->got)
		return NULL;
	order[n_done++] = w->number;
	shms_turns_end(&turns);
	return NULL;
}

static void start(struct waiter *w, unsigned number, uint64_t ns)
{
	*w = (struct waiter){.number = number, .ns = ns};
	cr_assert_eq(pthread_create(&w->thread, NULL, wait_and_pass, w), 0);
	while (n_begun <= number)
		sched_yield();
}

static void init(void)
{
	shms_turns_init(&turns);
	n_begun = n_done = 0;
}

static void fini(void)
{
	cr_assert_not(shms_turns_taken(&turns));
	cr_assert_not(shms_turns_waited(&turns));
	shms_turns_deinit(&turns);
}

TestSuite(turns, .init = init, .fini = fini);

Test(turns, who_comes_first_is_first)
{
	struct waiter w[THREADS];

	cr_assert(shms_turns_take(&turns, 0, NULL, NULL));
	for (unsigned i = 0; i < THREADS; i++)
		start(&w[i], i, UINT64_MAX);
	cr_assert(shms_turns_waited(&turns));
	shms_turns_end(&turns);
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(w[i].thread, NULL);
		cr_assert(w[i].got);
		cr_assert_eq(order[i], i);
	}
}

/* The first, one in the middle and the last give up; the others have their turns. */
Test(turns, who_gives_up_is_passed)
{
	struct waiter w[5];

	cr_assert(shms_turns_take(&turns, 0, NULL, NULL));
	for (unsigned i = 0; i < 5; i++)
		start(&w[i], i, i % 2 ? UINT64_MAX : 20000000);
	for (unsigned i = 0; i < 5; i += 2) {
		pthread_join(w[i].thread, NULL);
		cr_assert_not(w[i].got);
	}
	shms_turns_end(&turns);
	for (unsigned i = 1; i < 5; i += 2) {
		pthread_join(w[i].thread, NULL);
		cr_assert(w[i].got);
	}
	cr_assert_eq(order[0], 1);
	cr_assert_eq(order[1], 3);
}

Test(turns, tick_ends_the_wait)
{
	unsigned n = 0;

	cr_assert(shms_turns_take(&turns, 0, enough, &n));
	cr_assert_eq(n, 0);
	cr_assert_not(shms_turns_take(&turns, UINT64_MAX, enough, &n));
	cr_assert_eq(n, 3);
	n = 0;
	cr_assert_not(shms_turns_take(&turns, 20000000, count, &n));
	cr_assert_gt(n, 0);
	shms_turns_end(&turns);
}
