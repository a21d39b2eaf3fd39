/* SPDX-License-Identifier: Apache-2.0 */
/* How late the loop is: what is late, by how much, and what is forgotten. */
#include <criterion/criterion.h>

#include "loop.h"

#define SECOND UINT64_C(1000000000)

static uint64_t sum_of(const struct lateness *l)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < LATENESS_BUCKETS; i++)
		n += l->counts[i];
	return n;
}

Test(lateness, in_time)
{
	struct lateness l;

	lateness_init(&l, 5 * SECOND, SECOND);
	for (uint64_t i = 5; i < 100; i++)
		lateness_note(&l, i * SECOND);
	cr_assert_eq(l.n, 95);
	cr_assert_eq(l.counts[0], 95);
	cr_assert_eq(l.sum_ns, 0);
	cr_assert_eq(lateness_worst(&l), 0);
}

Test(lateness, bounds_belong_to_their_bucket)
{
	for (unsigned i = 0; i < LATENESS_BUCKETS - 1; i++) {
		struct lateness l;

		lateness_init(&l, SECOND, SECOND);
		lateness_note(&l, SECOND + lateness_bounds[i]);
		cr_assert_eq(l.counts[i], 1);
		lateness_init(&l, SECOND, SECOND);
		lateness_note(&l, SECOND + lateness_bounds[i] + 1);
		cr_assert_eq(l.counts[i + 1], 1);
		cr_assert_eq(sum_of(&l), 1);
	}
}

/* Held up for 3.4 s: one call that late, and the next one is expected at the next whole second. */
Test(lateness, calls_that_were_left_out_are_no_lateness)
{
	struct lateness l;

	lateness_init(&l, SECOND, SECOND);
	lateness_note(&l, SECOND);
	lateness_note(&l, 5 * SECOND + SECOND * 4 / 10);
	cr_assert_eq(lateness_worst(&l), 3 * SECOND + SECOND * 4 / 10);
	lateness_note(&l, 6 * SECOND + 7);
	cr_assert_eq(l.sum_ns, 3 * SECOND + SECOND * 4 / 10 + 7);
	cr_assert_eq(l.n, 3);
}

Test(lateness, the_worst_is_forgotten)
{
	struct lateness l;

	lateness_init(&l, SECOND, SECOND);
	lateness_note(&l, SECOND + 900);
	for (uint64_t i = 2; i <= LATENESS_RECENT; i++)
		lateness_note(&l, i * SECOND);
	cr_assert_eq(lateness_worst(&l), 900);
	lateness_note(&l, (LATENESS_RECENT + 1) * SECOND);
	cr_assert_eq(lateness_worst(&l), 0);
}

Test(lateness, early_is_not_late)
{
	struct lateness l;

	lateness_init(&l, 5 * SECOND, SECOND);
	lateness_note(&l, 4 * SECOND);
	cr_assert_eq(l.counts[0], 1);
	cr_assert_eq(l.sum_ns, 0);
}
