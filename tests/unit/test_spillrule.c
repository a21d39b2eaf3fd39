/* SPDX-License-Identifier: Apache-2.0 */
/* When a spill handler is called again: rows of tries, each with what it spilled
 * and what is to come of it. */
#include <criterion/criterion.h>
#include <errno.h>

#include "spillrule.h"

struct
try {
	int nth;
	int64_t spilled;
	int again;
};

static void run(const struct try *t, size_t n)
{
	struct shms_spillrule rule = {0};

	for (size_t i = 0; i < n; i++)
		cr_assert_eq(shms_spillrule_again(&rule, t[i].spilled, t[i].nth), t[i].again,
			     "try %zu", i);
}

#define ROW(...)                               \
	run((const struct try[]){__VA_ARGS__}, \
	    sizeof((const struct try[]){__VA_ARGS__}) / sizeof(struct try))

Test(spillrule, something_spilled_is_worth_another_try)
{
	ROW({0, 1, 1});
}

Test(spillrule, two_in_vain_and_a_third)
{
	ROW({0, 0, 1}, {1, 0, 1}, {2, 0, 0});
}

Test(spillrule, new_request_begins_anew)
{
	ROW({0, 0, 1}, {0, 0, 1}, {1, 0, 1}, {2, 0, 0});
}

Test(spillrule, progress_begins_anew)
{
	ROW({0, 0, 1}, {1, 5, 1}, {2, 0, 1}, {3, 0, 1}, {4, 0, 0});
}

Test(spillrule, below_zero_is_invalid)
{
	ROW({0, -1, -EINVAL}, {-1, 0, -EINVAL});
}
