/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of many threads that put into a full partition with a disk tier, one evicted and others took what
 * it had made room for: it evicted again, for seconds. The thread that comes first has room first
 * now: while a put waits, few are done that began after it.
 *
 * How often each thread puts says nothing of that: on a busy host one that runs takes what is left
 * over, while those that do not run ask for nothing.
 */
#include <criterion/criterion.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "api.h"
#include "tiered.h"

#define THREADS 24u
#define LARGE   25u /* puts of the first thread: small ones take what was made for a large one */
#define SIZE    40000u

static struct shmstore *s;
static _Atomic unsigned n_begun, n_passed; /* puts; those that passed the large one at hand */
static _Atomic unsigned large;             /* its number */
static _Atomic bool over;

struct putter {
	pthread_t thread;
	unsigned number, n;
	int error;
};

/* Each needs memory: of a key that is new. */
static void put_next(struct putter *p, unsigned size)
{
	unsigned mine = ++n_begun;
	char key[16];

	snprintf(key, sizeof(key), "%u-%u", p->number, p->n++);
	p->error = put_pattern(s, key, size, p->n, 0);
	n_passed += mine > large;
}

static void *put_small(void *arg)
{
	struct putter *p = arg;

	while (!over && p->error == 0)
		put_next(p, SIZE);
	return NULL;
}

static int by_number(const void *a, const void *b)
{
	return (int)*(const unsigned *)a - (int)*(const unsigned *)b;
}

Test(tier_puts_by_turns, who_comes_first_has_room_first, .timeout = 120)
{
	struct putter p[THREADS], first = {.number = THREADS};
	unsigned passed[LARGE];

	scratch_dir("size=16m");
	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own\n");
	TIERED_OR_SKIP();
	s = scratch_store("s");
	large = UINT_MAX;
	for (unsigned i = 0; i < THREADS; i++) {
		p[i] = (struct putter){.number = i};
		cr_assert_eq(pthread_create(&p[i].thread, NULL, put_small, &p[i]), 0);
	}
	for (unsigned i = 0; i < LARGE; i++) {
		n_passed = 0;
		large = n_begun + 1;
		put_next(&first, 16 * SIZE);
		passed[i] = n_passed;
		large = UINT_MAX;
	}
	over = true;
	cr_assert_eq(first.error, 0);
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(p[i].thread, NULL);
		cr_assert_eq(p[i].error, 0);
	}
	qsort(passed, LARGE, sizeof(*passed), by_number);
	cr_assert_lt(passed[LARGE / 2], THREADS, "%u passed one put, of %u", passed[LARGE / 2],
		     n_begun);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}
