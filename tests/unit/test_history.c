/* SPDX-License-Identifier: Apache-2.0 */
/* The last minutes of a partition: every second, then every tenth, never more. */
#include <criterion/criterion.h>

#include "account.h"

static struct history h;

static void fill(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		history_add(&h,
			    &(struct history_sample){.time_ns = (int64_t)i, .used = i * 4096ull});
}

Test(history, empty)
{
	cr_assert_eq(h.seconds.n, 0);
	cr_assert_eq(h.tens.n, 0);
	cr_assert_null(history_at(&h.seconds, 0));
	cr_assert_null(history_at(&h.tens, 0));
}

Test(history, every_second_and_every_tenth)
{
	fill(25);
	cr_assert_eq(h.seconds.n, 25);
	cr_assert_eq(h.tens.n, 3);
	for (size_t i = 0; i < 25; i++)
		cr_assert_eq(history_at(&h.seconds, i)->used, i * 4096);
	for (size_t i = 0; i < 3; i++)
		cr_assert_eq(history_at(&h.tens, i)->time_ns, (int64_t)i * 10);
	cr_assert_null(history_at(&h.seconds, 25));
	cr_assert_null(history_at(&h.tens, 3));
}

Test(history, the_oldest_go_and_order_stays)
{
	unsigned n = 20 * HISTORY_SECONDS + 7;

	fill(n);
	cr_assert_eq(h.seconds.n, HISTORY_SECONDS);
	cr_assert_eq(h.tens.n, HISTORY_SECONDS);
	for (size_t i = 0; i < HISTORY_SECONDS; i++)
		cr_assert_eq(history_at(&h.seconds, i)->time_ns,
			     (int64_t)(n - HISTORY_SECONDS + i));
	for (size_t i = 1; i < HISTORY_SECONDS; i++)
		cr_assert_eq(history_at(&h.tens, i)->time_ns - history_at(&h.tens, i - 1)->time_ns,
			     10);
	cr_assert_eq(history_at(&h.tens, HISTORY_SECONDS - 1)->time_ns, (int64_t)(n - 1) / 10 * 10);
}
