/* SPDX-License-Identifier: Apache-2.0 */
/* How often one place may log: a burst, then silence, then a count of what was left out. */
#include <criterion/criterion.h>

#include "log.h"

static unsigned flood(struct log_site *s, uint64_t now_ns, unsigned n)
{
	unsigned said = 0, left_out;

	for (unsigned i = 0; i < n; i++)
		said += log_site_allows(s, now_ns, &left_out);
	return said;
}

Test(loglimit, flood_is_cut_and_counted_in_the_next_window)
{
	struct log_site s = {0};
	unsigned left_out = 99;

	cr_assert_eq(flood(&s, 5, 1000), LOG_BURST);
	cr_assert(!log_site_allows(&s, 4 + LOG_WINDOW_NS, &left_out));
	cr_assert(log_site_allows(&s, 5 + LOG_WINDOW_NS, &left_out));
	cr_assert_eq(left_out, 1000 - LOG_BURST + 1);
	cr_assert(log_site_allows(&s, 6 + LOG_WINDOW_NS, &left_out));
	cr_assert_eq(left_out, 0);
}

Test(loglimit, one_place_does_not_silence_another)
{
	struct log_site a = {0}, b = {0};

	flood(&a, 5, 1000);
	cr_assert_eq(flood(&b, 5, 3), 3);
}
