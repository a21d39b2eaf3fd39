/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of quota.h, call by call: grants, refusals, waits. test_quota_limits.c: limits that
 * change, and stores that are asked for memory; test_quota_books.c: what is known of the stores'
 * memory; test_quota_model.c plays the histories.
 */
#include <criterion/criterion.h>
#include <errno.h>

#include "quotatest.h"

TestSuite(quota, .init = qt_start, .fini = qt_stop);

Test(quota, without_limits_all_is_granted)
{
	qt_add(&a, 1, "", "a");
	cr_assert_eq(a.page.granted, WIRE_UNLIMITED);
	cr_assert_eq(a.page.epoch, 7);
	cr_assert_eq(a.page.credit, CREDIT);
	cr_assert(qt_put(&a, 500 * MIB));
	cr_assert_eq(qt_request(&a, 1, MIB, 0, 0), 0);
	cr_assert_eq(quota_outstanding(a.q), 0);
}

Test(quota, grant_is_need_and_ahead)
{
	struct quota_want want = {1, 3 * MIB, CREDIT, false, 0};
	struct quota_answer got;

	qt_limit(WIRE_LIMIT_PARTITION, "", 1024 * MIB, 0);
	qt_add(&a, 1, "", "a");
	cr_assert_eq(a.page.granted, 0);
	cr_assert_eq(quota_request(q, a.q, &want, 0, &got), 0);
	cr_assert_eq(got.bytes, 3 * MIB + CREDIT);
	cr_assert_eq(a.page.granted, got.granted);
	/* The credit that is there is enough. */
	want.serial = 2;
	cr_assert_eq(quota_request(q, a.q, &want, 0, &got), 0);
	cr_assert_eq(got.bytes, 0);
}

Test(quota, ahead_shrinks_as_the_limit_comes_near)
{
	uint64_t before;

	qt_limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	qt_add(&a, 1, "", "a");
	qt_add(&b, 1, "", "b");
	cr_assert_eq(qt_request(&a, 1, MIB, CREDIT, 0), 0);
	cr_assert_leq(a.page.granted, 51 * MIB);
	cr_assert_eq(qt_request(&b, 2, MIB, CREDIT, 0), 0);
	cr_assert_leq(b.page.granted, 14 * MIB);
	before = b.page.granted;
	used_now = 100 * MIB - a.page.granted - before - MIB;
	cr_assert_eq(qt_request(&b, 3, before + MIB, CREDIT, 0), 0);
	cr_assert_eq(b.page.granted, before + MIB, "no room, nothing ahead");
}

Test(quota, refusal_names_the_limit)
{
	struct quota_want want = {1, 11 * MIB, 0, false, 0};
	struct quota_answer got;

	qt_limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	qt_limit(WIRE_LIMIT_USER, "1", 10 * MIB, 0);
	qt_limit(WIRE_LIMIT_LABEL, "dask", 5 * MIB, 0);
	qt_add(&a, 1, "", "a");
	qt_add(&b, 2, "dask", "b");
	qt_add(&c, 3, "", "c");
	cr_assert_eq(quota_request(q, a.q, &want, 0, &got), -EDQUOT);
	cr_assert_eq(got.limit, WIRE_LIMIT_USER);
	cr_assert_str_eq(got.id, "1");
	cr_assert_eq(got.hard, 10 * MIB);
	cr_assert_eq(quota_request(q, b.q, &want, 0, &got), -EDQUOT);
	cr_assert_eq(got.limit, WIRE_LIMIT_LABEL);
	cr_assert_str_eq(got.id, "dask");
	used_now = 95 * MIB;
	cr_assert_eq(quota_request(q, c.q, &want, 0, &got), -ENOSPC);
	cr_assert_eq(got.limit, WIRE_LIMIT_PARTITION);
	cr_assert_eq(got.used, 95 * MIB);
	cr_assert_eq(qt_line_of(WIRE_LIMIT_PARTITION, "").n_refused, 1);
}

Test(quota, bad_requests_are_invalid)
{
	qt_add(&a, 1, "", "a");
	cr_assert_eq(qt_request(&a, 0, MIB, 0, 0), -EINVAL);
	cr_assert_eq(qt_request(&a, 1, 0, 0, 0), -EINVAL);
	cr_assert_eq(qt_request(&a, 1, WIRE_GRANT_MAX + 1, 0, 0), -EINVAL);
	qt_limit(WIRE_LIMIT_PARTITION, "", 10 * MIB, 0);
	used_now = 10 * MIB;
	cr_assert_eq(qt_request(&a, 1, MIB, 0, NEVER), 1);
	cr_assert_eq(qt_request(&a, 1, MIB, 0, NEVER), -EINVAL, "serial 1 waits");
	for (uint64_t serial = 2; serial <= 4; serial++)
		cr_assert_eq(qt_request(&a, serial, MIB, 0, NEVER), 1);
	cr_assert_eq(qt_request(&a, 5, MIB, 0, NEVER), -EMFILE);
	/* A request that can never be granted does not wait. */
	cr_assert_eq(qt_request(&a, 6, 11 * MIB, 0, NEVER), -ENOSPC);
}

Test(quota, unspent_credit_of_others_is_taken)
{
	qt_limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	qt_add(&a, 1, "", "a");
	qt_add(&b, 1, "", "b");
	cr_assert_eq(qt_request(&a, 1, 60 * MIB, 0, 0), 0);
	cr_assert(qt_put(&a, 10 * MIB));
	/* It said that it needs them: it has a second. */
	cr_assert_eq(qt_request(&b, 2, 41 * MIB, 0, 0), -ENOSPC);
	cr_assert_eq(a.page.granted, 60 * MIB);
	now = SECOND;
	/* a is stopped now: its page is all that we need. */
	cr_assert_eq(qt_request(&b, 2, 90 * MIB, 0, 0), 0);
	cr_assert_eq(a.page.granted, 10 * MIB);
	cr_assert_not(wire_credit_charge(&a.page, 1));
	cr_assert_eq(qt_request(&b, 3, 91 * MIB, 0, 0), -ENOSPC);
}

Test(quota, idle_credit_is_taken_first)
{
	qt_limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	qt_add(&a, 1, "", "a");
	qt_add(&b, 1, "", "b");
	qt_add(&c, 1, "", "c");
	cr_assert_eq(qt_request(&a, 1, 40 * MIB, 0, 0), 0);
	cr_assert_eq(qt_request(&b, 2, 40 * MIB, 0, 0), 0);
	/* Nobody charges: both are idle after a while, and give all back; b gets it again. */
	quota_tick(q, 3 * SECOND);
	cr_assert_eq(a.page.granted, 0);
	cr_assert_eq(qt_request(&b, 3, 40 * MIB, 0, 0), 0);
	cr_assert_eq(qt_request(&a, 4, 40 * MIB, 0, 0), 0);
	/* Only one charges. */
	qt_put(&b, MIB);
	quota_tick(q, 4 * SECOND);
	qt_put(&b, MIB);
	quota_tick(q, 6 * SECOND);
	cr_assert_eq(a.page.granted, 0);
	cr_assert_eq(b.page.granted, 40 * MIB);
}

Test(quota, waits_are_served_in_order)
{
	qt_limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	qt_add(&a, 1, "", "a");
	qt_add(&b, 2, "", "b");
	used_now = 100 * MIB;
	cr_assert_eq(qt_request(&a, 1, 50 * MIB, 0, NEVER), 1);
	cr_assert_eq(qt_request(&b, 2, 10 * MIB, 0, NEVER), 1);
	/* 10 would fit, but 50 is first: neither by waiting nor by not waiting is it overtaken. */
	used_now = 80 * MIB;
	quota_serve(q, 1);
	cr_assert_eq(n_answers, 0);
	cr_assert_eq(qt_request(&b, 3, MIB, 0, 0), -ENOSPC);
	used_now = 45 * MIB;
	quota_serve(q, 1);
	cr_assert_eq(n_answers, 1);
	cr_assert_eq(answers[0].serial, 1);
	cr_assert_eq(answers[0].error, 0);
	cr_assert_eq(answers[0].answer.granted, 50 * MIB);
	used_now = 40 * MIB;
	quota_serve(q, 1);
	cr_assert_eq(n_answers, 2);
	cr_assert_eq(answers[1].serial, 2);
}

Test(quota, who_waits_for_its_users_limit_holds_back_nobody_else)
{
	qt_limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	qt_limit(WIRE_LIMIT_USER, "1", 10 * MIB, 0);
	qt_add(&a, 1, "", "a");
	qt_add(&b, 2, "", "b");
	qt_add(&c, 1, "", "c");
	cr_assert_eq(qt_request(&a, 1, 10 * MIB, 0, 0), 0);
	cr_assert(qt_put(&a, 10 * MIB));
	cr_assert_eq(qt_request(&a, 2, 5 * MIB, 0, NEVER), 1);
	cr_assert_eq(qt_request(&c, 3, MIB, 0, 0), -EDQUOT);
	cr_assert_eq(qt_request(&b, 4, 50 * MIB, 0, 0), 0);
	/* Of those that wait likewise. */
	cr_assert_eq(qt_request(&b, 5, 95 * MIB, 0, NEVER), 1);
	cr_assert_eq(n_answers, 0);
	used_now = 5 * MIB;
	quota_serve(q, 1);
	cr_assert_eq(n_answers, 1);
	cr_assert_eq(answers[0].serial, 5);
	cr_assert_eq(qt_line_of(WIRE_LIMIT_USER, "1").n_waiting, 1);
}

/* b waits for its user and for its label; others of either come and go as the
 * other one is what holds b. */
Test(quota, crossing_limits_starve_nobody)
{
	bool served = false;

	qt_limit(WIRE_LIMIT_USER, "1", 10 * MIB, 0);
	qt_limit(WIRE_LIMIT_LABEL, "x", 10 * MIB, 0);
	qt_add(&a, 1, "y", "a");
	qt_add(&b, 1, "x", "b");
	qt_add(&c, 2, "x", "c");
	cr_assert_eq(qt_request(&a, 1, 10 * MIB, 0, 0), 0);
	cr_assert(qt_put(&a, 10 * MIB));
	cr_assert_eq(qt_request(&b, 2, 10 * MIB, 0, NEVER), 1);
	for (int i = 0; i < 20 && !served; i++) {
		struct store *gives = i % 2 ? &c : &a, *takes = i % 2 ? &a : &c;

		/* The one that has all asks nothing; the other side's takes what is free,
		 * and then it gives all back. */
		if (qt_request(takes, 10 + (uint64_t)i, 10 * MIB, 0, 0) == 0)
			cr_assert(qt_put(takes, 10 * MIB));
		if (gives->page.fresh > gives->page.last)
			gives->page.last = gives->page.fresh;
		quota_serve(q, 1);
		served = n_answers > 0;
	}
	cr_assert(served, "nobody stood in its way for ever");
	cr_assert_eq(answers[0].serial, 2);
	cr_assert_eq(answers[0].error, 0);
}

Test(quota, deadlines_and_cancels_end_waits)
{
	qt_limit(WIRE_LIMIT_PARTITION, "", 10 * MIB, 0);
	qt_add(&a, 1, "", "a");
	used_now = 10 * MIB;
	cr_assert_eq(quota_deadline(q), UINT64_MAX);
	cr_assert_eq(qt_request(&a, 1, MIB, 0, 500), 1);
	cr_assert_eq(qt_request(&a, 2, MIB, 0, 300), 1);
	cr_assert_eq(qt_request(&a, 3, MIB, 0, NEVER), 1);
	cr_assert_eq(quota_deadline(q), 300);
	quota_serve(q, 299);
	cr_assert_eq(n_answers, 0);
	quota_serve(q, 300);
	cr_assert_eq(n_answers, 1);
	cr_assert_eq(answers[0].serial, 2);
	cr_assert_eq(answers[0].error, -ETIMEDOUT);
	cr_assert_eq(answers[0].answer.limit, WIRE_LIMIT_PARTITION);
	cr_assert_eq(quota_cancel(q, a.q, 3), 0);
	cr_assert_eq(answers[1].error, -ECANCELED);
	cr_assert_eq(quota_cancel(q, a.q, 3), -ENOENT);
	quota_cancel_all(q, a.q);
	cr_assert_eq(n_answers, 2);
	cr_assert_eq(quota_deadline(q), UINT64_MAX);
	cr_assert_eq(qt_line_of(WIRE_LIMIT_PARTITION, "").n_waiting, 0);
}

Test(quota, death_returns_credit)
{
	qt_limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	qt_add(&a, 1, "", "a");
	qt_add(&b, 1, "", "b");
	cr_assert_eq(qt_request(&a, 1, 100 * MIB, 0, 0), 0);
	cr_assert(wire_credit_charge(&a.page, 90 * MIB));
	cr_assert_eq(qt_request(&b, 2, 50 * MIB, 0, NEVER), 1);
	quota_serve(q, 1);
	cr_assert_eq(n_answers, 0);
	quota_remove(q, a.q, 2);
	cr_assert_eq(n_answers, 1);
	cr_assert_eq(answers[0].serial, 2);
	cr_assert_eq(answers[0].error, 0);
}
