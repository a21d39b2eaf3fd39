/* SPDX-License-Identifier: Apache-2.0 */
/* The last minutes of a partition: every second, then every tenth, never more. */
#include <criterion/criterion.h>

#include "history.h"

static struct history *filled(unsigned n)
{
	struct history *h;

	cr_assert_eq(history_new(&h), 0);
	for (unsigned i = 0; i < n; i++)
		history_add(h,
			    &(struct history_sample){.time_ns = (int64_t)i, .used = i * 4096ull});
	return h;
}

Test(history, empty)
{
	struct history *h = filled(0);

	cr_assert_eq(history_count(h, 1), 0);
	cr_assert_eq(history_count(h, 0), 0);
	cr_assert_null(history_at(h, 1, 0));
	cr_assert_null(history_at(h, 0, 0));
	cr_assert_null(history_free(h));
	cr_assert_null(history_free(NULL));
}

Test(history, every_second_and_every_tenth)
{
	struct history *h = filled(25);

	cr_assert_eq(history_count(h, 1), 25);
	cr_assert_eq(history_count(h, 0), 3);
	for (size_t i = 0; i < 25; i++)
		cr_assert_eq(history_at(h, 1, i)->used, i * 4096);
	for (size_t i = 0; i < 3; i++)
		cr_assert_eq(history_at(h, 0, i)->time_ns, (int64_t)i * 10);
	cr_assert_null(history_at(h, 1, 25));
	cr_assert_null(history_at(h, 0, 3));
	history_free(h);
}

Test(history, the_oldest_go_and_order_stays)
{
	unsigned n = 20 * HISTORY_SECONDS + 7;
	struct history *h = filled(n);

	cr_assert_eq(history_count(h, 1), HISTORY_SECONDS);
	cr_assert_eq(history_count(h, 0), HISTORY_SECONDS);
	for (size_t i = 0; i < HISTORY_SECONDS; i++)
		cr_assert_eq(history_at(h, 1, i)->time_ns, (int64_t)(n - HISTORY_SECONDS + i));
	for (size_t i = 1; i < HISTORY_SECONDS; i++)
		cr_assert_eq(history_at(h, 0, i)->time_ns - history_at(h, 0, i - 1)->time_ns, 10);
	cr_assert_eq(history_at(h, 0, HISTORY_SECONDS - 1)->time_ns, (int64_t)(n - 1) / 10 * 10);
	history_free(h);
}
