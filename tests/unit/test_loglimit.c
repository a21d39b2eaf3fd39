/* SPDX-License-Identifier: Apache-2.0 */
/* How often one place may log: a burst, then silence, then a count of what was left out. */
#include <criterion/criterion.h>

#include "log.h"

static const char FILE_A[] = "a.c", FILE_B[] = "b.c";

static unsigned flood(struct loglimit *l, const char *file, int line, uint64_t now_ns, unsigned n)
{
	unsigned said = 0, left_out;

	for (unsigned i = 0; i < n; i++)
		said += loglimit_allow(l, file, line, now_ns, &left_out);
	return said;
}

Test(loglimit, flood_is_cut_and_counted_in_the_next_window)
{
	struct loglimit l = {0};
	unsigned left_out = 99;

	cr_assert_eq(flood(&l, FILE_A, 1, 5, 1000), LOGLIMIT_BURST);
	cr_assert(!loglimit_allow(&l, FILE_A, 1, 4 + LOGLIMIT_WINDOW_NS, &left_out));
	cr_assert(loglimit_allow(&l, FILE_A, 1, 5 + LOGLIMIT_WINDOW_NS, &left_out));
	cr_assert_eq(left_out, 1000 - LOGLIMIT_BURST + 1);
	cr_assert(loglimit_allow(&l, FILE_A, 1, 6 + LOGLIMIT_WINDOW_NS, &left_out));
	cr_assert_eq(left_out, 0);
}

Test(loglimit, one_place_does_not_silence_another)
{
	struct loglimit l = {0};

	flood(&l, FILE_A, 1, 5, 1000);
	cr_assert_eq(flood(&l, FILE_A, 2, 5, 3), 3);
	cr_assert_eq(flood(&l, FILE_B, 1, 5, 3), 3);
}

Test(loglimit, full_table_says_all)
{
	struct loglimit l = {0};

	for (int line = 0; line < (int)LOGLIMIT_SITES; line++)
		flood(&l, FILE_A, line, 5, 1);
	cr_assert_eq(flood(&l, FILE_B, 1, 5, 1000), 1000);
	cr_assert_eq(flood(&l, FILE_A, 0, 5, 1000), LOGLIMIT_BURST - 1);
}
