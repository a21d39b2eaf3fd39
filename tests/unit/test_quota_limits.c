/* SPDX-License-Identifier: Apache-2.0 */
/* quota.h's limits: hard ones that change while stores live, and soft ones, over which
 * stores are asked to give. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "quotatest.h"

TestSuite(quota_limits, .init = qt_start, .fini = qt_stop);

Test(quota_limits, limits_change_at_run_time)
{
	qt_add(&a, 1, "", "a");
	cr_assert(qt_put(&a, 30 * MIB));
	cr_assert(wire_credit_charge(&a.page, 5 * MIB));
	qt_limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	/* The bytes in flight are outstanding; nothing else may be charged now. */
	cr_assert_eq(quota_outstanding(a.q), 5 * MIB);
	cr_assert_not(wire_credit_charge(&a.page, 1));
	cr_assert_eq(a.page.partition_hard, 100 * MIB);
	cr_assert_eq(qt_request(&a, 1, 60 * MIB, 0, 0), 0);
	/* Below what is granted: what is not spent comes back at once. */
	qt_limit(WIRE_LIMIT_PARTITION, "", 40 * MIB, 0);
	cr_assert_leq(used_now + quota_outstanding(a.q), 40 * MIB);
	cr_assert_eq(qt_request(&a, 2, 39 * MIB, 0, 0), -ENOSPC);
	qt_limit(WIRE_LIMIT_PARTITION, "", 0, 0);
	cr_assert_eq(a.page.granted, WIRE_UNLIMITED);
	cr_assert_eq(a.page.partition_hard, 0);
	qt_limit(WIRE_LIMIT_STORE, "a", 50 * MIB, 0);
	cr_assert_eq(a.page.store_hard, 50 * MIB);
	cr_assert_eq(a.page.granted, WIRE_UNLIMITED, "its owner keeps that limit");
}

Test(quota_limits, limit_that_is_lifted_serves_waits)
{
	qt_limit(WIRE_LIMIT_USER, "*", 10 * MIB, 0);
	qt_limit(WIRE_LIMIT_USER, "1", 20 * MIB, 0);
	qt_add(&a, 1, "", "a");
	qt_add(&b, 2, "", "b");
	cr_assert_eq(a.page.user_hard, 20 * MIB);
	cr_assert_eq(b.page.user_hard, 10 * MIB);
	cr_assert_eq(qt_request(&a, 1, 20 * MIB, 0, 0), 0);
	cr_assert(qt_put(&a, 20 * MIB));
	cr_assert_eq(qt_request(&a, 2, MIB, 0, NEVER), 1);
	qt_limit(WIRE_LIMIT_USER, "1", 30 * MIB, 0);
	cr_assert_eq(n_answers, 1);
	cr_assert_eq(answers[0].error, 0);
	/* Back to what * says: 10, less than what is there. */
	qt_limit(WIRE_LIMIT_USER, "1", QUOTA_DEFAULT, QUOTA_DEFAULT);
	cr_assert_eq(a.page.user_hard, 10 * MIB);
	cr_assert_eq(qt_request(&a, 3, 2 * MIB, 0, 0), -EDQUOT);
	/* A wait for what a lowered limit can never give ends. */
	cr_assert_eq(qt_request(&a, 4, 9 * MIB, 0, NEVER), 1);
	qt_limit(WIRE_LIMIT_USER, "*", 8 * MIB, 0);
	cr_assert_eq(n_answers, 2);
	cr_assert_eq(answers[1].error, -EDQUOT);
}

static uint64_t most_now;

static uint64_t most(void *arg)
{
	(void)arg;
	return most_now;
}

/* The sum of a user counts what the kernel does not any more: it is not refused for that. */
Test(quota_limits, nobody_uses_more_than_the_kernel_counts)
{
	static const struct quota_config config = {.epoch = 7,
						   .credit = CREDIT,
						   .idle_ns = 2 * SECOND,
						   .pledge_ns = SECOND,
						   .waits_max = 4};
	struct quota_ops ops = qt_ops;

	ops.most = most;
	most_now = NEVER;
	quota_free(q);
	cr_assert_eq(quota_new(&config, &ops, &q), 0);
	qt_limit(WIRE_LIMIT_USER, "1", 40 * MIB, 0);
	qt_add(&a, 1, "", "a");
	qt_add(&b, 1, "", "b");
	cr_assert_eq(qt_request(&a, 1, 30 * MIB, 0, 0), 0);
	cr_assert(qt_put(&a, 30 * MIB));
	/* Killed: what it had is the user's until somebody knows better. */
	quota_remove(q, a.q, now);
	cr_assert_eq(qt_request(&b, 1, 30 * MIB, 0, 0), -EDQUOT);
	cr_assert(quota_unsure(q));
	/* Its files have gone. */
	most_now = 5 * MIB;
	cr_assert_eq(qt_request(&b, 2, 30 * MIB, 0, 0), 0);
	cr_assert_eq(qt_line_of(WIRE_LIMIT_USER, "1").used, 5 * MIB);
	cr_assert_eq(qt_request(&b, 3, 40 * MIB, 0, 0), -EDQUOT);
}

/* A request that waits for a survey is refused when that is over, not timed out. */
Test(quota_limits, request_waits_for_a_survey)
{
	struct quota_want want = {
		.serial = 1, .need = 30 * MIB, .look = true, .deadline_ns = NEVER};
	struct quota_answer answer;

	qt_limit(WIRE_LIMIT_USER, "1", 40 * MIB, 0);
	qt_add(&a, 1, "", "a");
	qt_add(&b, 1, "", "b");
	cr_assert_eq(qt_request(&a, 1, 30 * MIB, 0, 0), 0);
	cr_assert(qt_put(&a, 30 * MIB));
	quota_remove(q, a.q, now);
	cr_assert_eq(quota_request(q, b.q, &want, now, &answer), 1);
	quota_mark(q);
	cr_assert_not(quota_unsure(q));
	quota_rebase(q, WIRE_LIMIT_USER, "1", 30 * MIB);
	quota_rebased(q, now);
	quota_looked(q, now);
	cr_assert_eq(n_answers, 1);
	cr_assert_eq(answers[0].error, -EDQUOT);
	want.serial = 2;
	cr_assert_eq(quota_request(q, b.q, &want, now, &answer), 1);
	quota_mark(q);
	quota_rebased(q, now);
	cr_assert_eq(n_answers, 2);
	cr_assert_eq(answers[1].error, 0);
}

Test(quota_limits, bad_limits_are_invalid)
{
	struct quota_limits l = {MIB, 2 * MIB, 0};
	char id[QUOTA_ID_MAX + 2];

	cr_assert_eq(quota_limit(q, WIRE_LIMIT_PARTITION, "", &l, 0), -EINVAL);
	l = (struct quota_limits){MIB, 0, 0};
	cr_assert_eq(quota_limit(q, WIRE_LIMIT_PARTITION, "x", &l, 0), -EINVAL);
	cr_assert_eq(quota_limit(q, WIRE_LIMIT_USER, "", &l, 0), -EINVAL);
	cr_assert_eq(quota_limit(q, WIRE_LIMIT_NONE, "", &l, 0), -EINVAL);
	cr_assert_eq(quota_limit(q, (enum wire_limit)5, "", &l, 0), -EINVAL);
	memset(id, 'x', sizeof(id) - 1);
	id[sizeof(id) - 1] = '\0';
	cr_assert_eq(quota_limit(q, WIRE_LIMIT_LABEL, id, &l, 0), -EINVAL);
	l.hard = QUOTA_MAX + 1;
	cr_assert_eq(quota_limit(q, WIRE_LIMIT_PARTITION, "", &l, 0), -EINVAL);
	l = (struct quota_limits){0, MIB, 2 * MIB};
	cr_assert_eq(quota_limit(q, WIRE_LIMIT_PARTITION, "", &l, 0), -EINVAL);
}

Test(quota_limits, asks_over_soft_until_below_low)
{
	struct quota_limits l = {0, 100 * MIB, 60 * MIB};

	cr_assert_eq(quota_limit(q, WIRE_LIMIT_PARTITION, "", &l, 0), 0);
	qt_add(&a, 1, "", "a");
	qt_add(&b, 1, "", "b");
	a.share = (struct quota_share){.linked = 10 * MIB, .pool = 5 * MIB};
	b.share = (struct quota_share){.linked = 70 * MIB, .pool = 20 * MIB};
	used_now = 99 * MIB;
	quota_tick(q, 1);
	cr_assert_eq(a.n_asked + b.n_asked, 0);
	used_now = 105 * MIB;
	quota_tick(q, 2);
	cr_assert_eq(n_levels, 1);
	cr_assert_eq(levels[0].level, 1);
	/* 45 over low: the pools first, then the largest store. */
	cr_assert_eq(a.asked, 5 * MIB);
	cr_assert_eq(b.asked, 40 * MIB);
	/* Nothing happened: nobody is asked the same again. */
	quota_tick(q, 3);
	cr_assert_eq(a.n_asked + b.n_asked, 2);
	/* b gives; below soft, above low: the rest is still wanted, by the word that was said. */
	b.page.given_bytes = 30 * MIB;
	b.share = (struct quota_share){.linked = 60 * MIB};
	used_now = 75 * MIB;
	quota_tick(q, 4);
	cr_assert_eq(a.n_asked + b.n_asked, 2);
	used_now = 59 * MIB;
	quota_tick(q, 5);
	cr_assert_eq(a.asked, 0);
	cr_assert_eq(b.asked, 0);
	cr_assert_eq(n_levels, 2);
	cr_assert_eq(levels[1].level, 0);
	used_now = 95 * MIB;
	quota_tick(q, 6);
	cr_assert_eq(a.n_asked + b.n_asked, 4, "below soft, and not on its way down");
}

Test(quota_limits, who_waits_at_hard_has_others_asked)
{
	qt_limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	qt_add(&a, 1, "", "a");
	qt_add(&b, 1, "", "b");
	b.share = (struct quota_share){.linked = 70 * MIB, .pool = 20 * MIB};
	used_now = 95 * MIB;
	cr_assert_eq(qt_request(&a, 1, 15 * MIB, 0, NEVER), 1);
	cr_assert_eq(b.asked, 10 * MIB);
	cr_assert_eq(n_levels, 1);
	cr_assert_eq(levels[0].level, 2);
	used_now = 80 * MIB;
	quota_tick(q, 1);
	cr_assert_eq(n_answers, 1);
	cr_assert_eq(b.asked, 0);
	cr_assert_eq(levels[n_levels - 1].level, 0);
}
