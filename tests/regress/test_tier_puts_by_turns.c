/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of many threads that put into a full partition with a disk tier, one evicted and others took what it had made room for: it evicted again,
 * for seconds. Who comes first has room first now, so that all come on alike.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "api.h"
#include "tiered.h"

#define THREADS 24u
#define PUTS    2400u
#define KEYS    20u
#define SIZE    40000u

static struct shmstore *s;
static _Atomic unsigned n_puts;

struct putter {
	pthread_t thread;
	unsigned number, n;
	int error;
};

static void *put_on(void *arg)
{
	struct putter *p = arg;
	char key[16];

	while (n_puts < PUTS && p->error == 0) {
		snprintf(key, sizeof(key), "%u-%u", p->number, p->n % KEYS);
		/* Small ones take what was made for a large one. */
		p->error = put_pattern(s, key, p->number ? SIZE : 16 * SIZE, p->n, SHMSTORE_REPLACE);
		p->n++;
		n_puts++;
	}
	return NULL;
}

Test(tier_puts_by_turns, all_come_on_alike)
{
	struct putter p[THREADS];

	scratch_dir("size=16m");
	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own\n");
	TIERED_OR_SKIP();
	s = scratch_store("s");
	for (unsigned i = 0; i < THREADS; i++) {
		p[i] = (struct putter){.number = i};
		cr_assert_eq(pthread_create(&p[i].thread, NULL, put_on, &p[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(p[i].thread, NULL);
	for (unsigned i = 0; i < THREADS; i++) {
		cr_assert_eq(p[i].error, 0);
		cr_assert_gt(p[i].n, PUTS / THREADS / 2, "thread %u put %u times, of %u", i, p[i].n, PUTS);
	}
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}
