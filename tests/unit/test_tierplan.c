/* SPDX-License-Identifier: Apache-2.0 */
/* When demotion begins, how long it waits after a failure, and whose objects go first. */
#include <criterion/criterion.h>
#include <stdint.h>

#include "tierkeeper.h"

#define SECOND UINT64_C(1000000000)
#define MIB    (UINT64_C(1) << 20)

static const struct tierplan_marks marks = {.high = 85, .low = 75, .urgent = 92};

static bool due(struct tierplan *p, uint64_t used, uint64_t pool, uint64_t ns)
{
	return tierplan_due(p, &marks,
			    &(struct tierplan_now){.used = used, .pool = pool, .ns = ns});
}

Test(tierplan, marks_are_of_the_smaller_of_size_and_limit)
{
	struct tierplan_marks m = tierplan_marks(1000 * MIB, 0, 85, 75);

	cr_assert(m.high == 850 * MIB && m.low == 750 * MIB && m.urgent == 925 * MIB);
	m = tierplan_marks(1000 * MIB, 100 * MIB, 85, 75);
	cr_assert(m.high == 85 * MIB && m.low == 75 * MIB);
	m = tierplan_marks(1000 * MIB, 2000 * MIB, 85, 75);
	cr_assert_eq(m.high, 850 * MIB);
	m = tierplan_marks(0, 100 * MIB, 100, 0);
	cr_assert(m.high == 100 * MIB && m.low == 0 && m.urgent == 100 * MIB);
	m = tierplan_marks(UINT64_MAX, 0, 85, 75);
	cr_assert(m.high > m.low && m.urgent > m.high);
}

Test(tierplan, without_a_size_nothing_is_ever_due)
{
	struct tierplan_marks none = tierplan_marks(0, 0, 85, 75);
	struct tierplan p = {0};

	cr_assert_not(tierplan_due(&p, &none,
				   &(struct tierplan_now){.used = UINT64_MAX, .ns = 5 * SECOND}));
}

Test(tierplan, begins_above_high_and_not_between_the_marks)
{
	struct tierplan p = {0};

	cr_assert_not(due(&p, 85, 0, SECOND));
	cr_assert(due(&p, 86, 0, 2 * SECOND));
	/* An eviction brought it down to low; it rises again. */
	cr_assert_not(due(&p, 75, 0, 3 * SECOND));
	cr_assert_not(due(&p, 84, 0, 4 * SECOND));
	cr_assert(due(&p, 90, 0, 5 * SECOND));
}

Test(tierplan, recycled_files_that_would_do_are_waited_for_a_moment)
{
	struct tierplan p = {0};

	cr_assert_not(due(&p, 86, 11, SECOND));
	cr_assert_not(due(&p, 86, 11, SECOND + SECOND / 2));
	cr_assert(due(&p, 86, 11, 2 * SECOND), "they did not come");
	p = (struct tierplan){0};
	cr_assert(due(&p, 86, 10, SECOND), "they would not do");
	p = (struct tierplan){0};
	cr_assert(due(&p, 92, 92, SECOND), "there is no time");
	/* Below in between: another moment. */
	p = (struct tierplan){0};
	cr_assert_not(due(&p, 86, 11, SECOND));
	cr_assert_not(due(&p, 80, 11, 2 * SECOND));
	cr_assert_not(due(&p, 86, 11, 3 * SECOND));
}

Test(tierplan, failures_wait_twice_as_long_each_time_up_to_a_minute)
{
	struct tierplan p = {0};
	uint64_t now = SECOND, wait = 0;

	for (unsigned i = 0; i < 10; i++) {
		uint64_t next = tierplan_failed(&p, now);

		cr_assert_eq(next, i == 0 ? SECOND : i <= 6 ? 2 * wait : 64 * SECOND, "%u", i);
		wait = next;
		cr_assert_not(due(&p, 100, 0, now + wait - 1));
		cr_assert(due(&p, 100, 0, now + wait));
		now += wait;
	}
	tierplan_succeeded(&p);
	cr_assert(due(&p, 100, 0, now));
	cr_assert_eq(tierplan_failed(&p, now), SECOND);
	tierplan_forget(&p);
	cr_assert(due(&p, 100, 0, now));
}

Test(tierplan, a_fast_rise_is_looked_at_more_often)
{
	const struct tierplan_now before = {.used = 50, .ns = SECOND};

	cr_assert_eq(tierplan_next_look(&marks, &before,
					&(struct tierplan_now){.used = 67, .ns = 2 * SECOND}),
		     UINT64_MAX);
	cr_assert_eq(tierplan_next_look(&marks, &before,
					&(struct tierplan_now){.used = 68, .ns = 2 * SECOND}),
		     2 * SECOND + SECOND / 20);
	cr_assert_eq(
		tierplan_next_look(&marks, &before,
				   &(struct tierplan_now){.used = 59, .ns = SECOND + SECOND / 4}),
		SECOND + SECOND / 4 + SECOND / 20, "by the rate, not by the difference");
	cr_assert_eq(tierplan_next_look(&marks, &before,
					&(struct tierplan_now){.used = 50, .ns = 2 * SECOND}),
		     UINT64_MAX);
	cr_assert_eq(tierplan_next_look(&marks, &before, &before), UINT64_MAX);
}

static void expect(const struct tierplan_step *steps, size_t n, const struct tierplan_step *want,
		   size_t n_want)
{
	cr_assert_eq(n, n_want, "%zu", n);
	for (size_t i = 0; i < n; i++)
		cr_assert(steps[i].uid == want[i].uid && steps[i].bytes == want[i].bytes,
			  "%zu: %u %lu", i, steps[i].uid, (unsigned long)steps[i].bytes);
}

#define EXPECT(...)                                                   \
	expect(steps, n, (const struct tierplan_step[]){__VA_ARGS__}, \
	       sizeof((const struct tierplan_step[]){__VA_ARGS__}) / sizeof(struct tierplan_step))

Test(tierplan, who_is_above_the_share_gives_first_and_the_idle_before_the_busy)
{
	struct tierplan_step steps[8];
	struct tierplan_user users[] = {
		{.uid = 1, .bytes = 10, .share = 20}, /* below its limit, though idle */
		{.uid = 2, .bytes = 60, .share = 20}, /* 40 too many, busy */
		{.uid = 3, .bytes = 30, .share = 20, .idle = true} /* 10 too many, idle */
	};
	size_t n;

	users[0].idle = true;
	n = tierplan_steps(users, 3, 90, 30, steps);
	EXPECT({3, 10}, {2, 20});
}

Test(tierplan, when_nobody_has_too_much_left_the_largest_idle_gives)
{
	struct tierplan_step steps[8];
	struct tierplan_user users[] = {
		{.uid = 1, .bytes = 10, .share = 20, .idle = true},
		{.uid = 2, .bytes = 25, .share = 20},
		{.uid = 3, .bytes = 15, .share = 20, .idle = true},
	};
	size_t n = tierplan_steps(users, 3, 40, 32, steps);

	EXPECT({2, 5}, {3, 15}, {1, 10}, {2, 2});
}

Test(tierplan, without_limits_the_share_is_an_equal_part)
{
	struct tierplan_step steps[8];
	struct tierplan_user users[] = {{.uid = 1, .bytes = 70}, {.uid = 2, .bytes = 20}};
	size_t n = tierplan_steps(users, 2, 80, 10, steps);

	EXPECT({1, 10});
}

Test(tierplan, no_users_or_more_need_than_there_is)
{
	struct tierplan_step steps[4];
	struct tierplan_user user = {.uid = 1, .bytes = 7, .share = 5};
	size_t n;

	cr_assert_eq(tierplan_steps(NULL, 0, 10, 10, steps), 0);
	n = tierplan_steps(&user, 1, 10, 100, steps);
	EXPECT({1, 2}, {1, 5});
	user = (struct tierplan_user){.uid = 1};
	cr_assert_eq(tierplan_steps(&user, 1, 10, 100, steps), 0);
}
