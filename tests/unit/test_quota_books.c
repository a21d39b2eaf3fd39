/* SPDX-License-Identifier: Apache-2.0 */
/* quota.h's books of stores' memory: from their pages, honest or not, from surveys,
 * and from those that died. */
#include <criterion/criterion.h>
#include <errno.h>

#include "quotatest.h"

TestSuite(quota_books, .init = qt_start, .fini = qt_stop);

Test(quota_books, users_keep_what_their_dead_stores_left)
{
	uint64_t books;

	qt_limit(WIRE_LIMIT_USER, "1", 10 * MIB, 0);
	qt_add(&a, 1, "", "a");
	qt_add(&b, 1, "", "b");
	cr_assert_eq(qt_request(&a, 1, 8 * MIB, 0, 0), 0);
	cr_assert(qt_put(&a, 8 * MIB));
	quota_remove(q, a.q, 0);
	cr_assert(a.page.flags & WIRE_CREDIT_GONE);
	cr_assert_eq(b.page.user_base, 8 * MIB);
	cr_assert_eq(qt_request(&b, 2, 3 * MIB, 0, 0), -EDQUOT);
	books = quota_books(q);
	quota_freed(q, books, 1, "", 8 * MIB, 0);
	cr_assert_eq(b.page.user_base, 0);
	cr_assert_eq(qt_request(&b, 3, 3 * MIB, 0, 0), 0);
}

Test(quota_books, survey_corrects_users)
{
	uint64_t books;

	qt_limit(WIRE_LIMIT_USER, "*", 10 * MIB, 0);
	qt_limit(WIRE_LIMIT_LABEL, "x", 20 * MIB, 0);
	qt_add(&a, 1, "x", "a");
	cr_assert_eq(a.page.user_hard, 10 * MIB);
	cr_assert(a.page.flags & WIRE_CREDIT_LAST);
	cr_assert_eq(qt_request(&a, 1, 6 * MIB, 0, 0), 0);
	books = quota_books(q);
	quota_mark(q);
	cr_assert(qt_put(&a, MIB));
	quota_mark(q); /* the last one counts */
	cr_assert(qt_put(&a, 2 * MIB));
	/* It found 5 of user 1, kept ones perhaps; and whether it saw these 2, who knows. */
	quota_rebase(q, WIRE_LIMIT_USER, "1", 5 * MIB);
	quota_rebased(q, 0);
	cr_assert_eq(qt_line_of(WIRE_LIMIT_USER, "1").used, 7 * MIB);
	cr_assert_eq(qt_line_of(WIRE_LIMIT_LABEL, "x").used, 2 * MIB);
	/* A reap that began before that survey's end is left to the next one. */
	quota_freed(q, books, 1, "x", 5 * MIB, 0);
	cr_assert_eq(qt_line_of(WIRE_LIMIT_USER, "1").used, 7 * MIB);
	cr_assert(quota_stale(q));
	quota_mark(q);
	cr_assert_not(quota_stale(q));
	quota_rebase(q, WIRE_LIMIT_USER, "1", 2 * MIB);
	quota_rebase(q, WIRE_LIMIT_LABEL, "x", 2 * MIB);
	quota_rebased(q, 0);
	cr_assert_eq(qt_line_of(WIRE_LIMIT_USER, "1").used, 2 * MIB);
	quota_mark(q);
	quota_unmark(q);
	cr_assert(quota_stale(q), "a survey that failed is owed");
}

Test(quota_books, refusal_after_a_survey_that_was_overtaken_wants_another_one)
{
	qt_limit(WIRE_LIMIT_USER, "*", 10 * MIB, 0);
	qt_add(&a, 1, "", "a");
	cr_assert_eq(qt_request(&a, 1, 4 * MIB, 0, 0), 0);
	quota_mark(q);
	cr_assert(qt_put(&a, 4 * MIB));
	/* It saw them, and they came since its begin: counted twice. */
	quota_rebase(q, WIRE_LIMIT_USER, "1", 4 * MIB);
	quota_rebased(q, 0);
	cr_assert_eq(qt_line_of(WIRE_LIMIT_USER, "1").used, 8 * MIB);
	cr_assert_not(quota_stale(q), "nobody wants for it");
	cr_assert_eq(qt_request(&a, 2, 4 * MIB, 0, 0), -EDQUOT);
	cr_assert(quota_stale(q));
	quota_mark(q);
	quota_rebase(q, WIRE_LIMIT_USER, "1", 4 * MIB);
	quota_rebased(q, 0);
	cr_assert_eq(qt_request(&a, 3, 4 * MIB, 0, 0), 0);
	cr_assert_eq(qt_request(&a, 4, 8 * MIB, 0, 0), -EDQUOT);
	cr_assert_not(quota_stale(q), "that one was right");
}

Test(quota_books, successor_reads_the_pages)
{
	struct quota_answer got;
	struct quota_want want = {1, 21 * MIB, 0, false, 0};

	qt_limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	qt_limit(WIRE_LIMIT_USER, "1", 90 * MIB, 0);
	qt_add(&a, 1, "", "a");
	qt_add(&b, 1, "", "b");
	qt_add(&d, 1, "", "d");
	cr_assert_eq(qt_request(&d, 9, MIB, 0, 0), 0);
	cr_assert(qt_put(&d, MIB));
	quota_remove(q, d.q, 0);
	cr_assert_eq(qt_request(&a, 1, 60 * MIB, 0, 0), 0);
	cr_assert(qt_put(&a, 10 * MIB));
	q = quota_free(q);

	cr_assert_eq(quota_new(&(struct quota_config){8, CREDIT, SECOND, SECOND, 4}, &qt_ops, &q),
		     0);
	qt_limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	qt_limit(WIRE_LIMIT_USER, "1", 90 * MIB, 0);
	qt_add(&a, 1, "", "a");
	qt_add(&b, 1, "", "b");
	cr_assert_eq(a.page.epoch, 8);
	cr_assert_eq(a.page.granted, 60 * MIB);
	cr_assert_eq(quota_outstanding(a.q), 50 * MIB);
	cr_assert_eq(qt_line_of(WIRE_LIMIT_USER, "1").used, 11 * MIB);
	/* 11 are used, 50 outstanding: of user 1, 29 are left, and 50 could be taken from a. */
	cr_assert_eq(quota_request(q, b.q, &want, 0, &got), 0);
	cr_assert_eq(a.page.granted, 60 * MIB);
}

Test(quota_books, pages_of_an_earlier_life_are_not_believed_all)
{
	qt_limit(WIRE_LIMIT_PARTITION, "", 1024 * MIB, 0);
	qt_limit(WIRE_LIMIT_USER, "1", 10 * MIB, 0);
	a.page.epoch = b.page.epoch = 3;
	/* Says that it may charge the whole partition, and that it has as much in flight. */
	a.page.granted = 1 << 30;
	b.page.charged = b.page.granted = UINT64_C(1) << 50;
	qt_add(&a, 1, "", "a");
	qt_add(&b, 1, "", "b");
	qt_add(&c, 2, "", "c");
	cr_assert_leq(quota_outstanding(a.q), 4 * CREDIT);
	cr_assert_leq(quota_outstanding(b.q), 10 * MIB + 4 * CREDIT);
	cr_assert_eq(qt_request(&c, 1, 500 * MIB, 0, 0), 0);
}

Test(quota_books, liars_get_nothing_more)
{
	qt_limit(WIRE_LIMIT_PARTITION, "", 1024 * MIB, 0);
	qt_add(&a, 1, "", "a");
	qt_add(&b, 1, "", "b");
	qt_add(&c, 1, "", "c");
	qt_add(&d, 1, "", "d");
	cr_assert_eq(qt_request(&a, 1, 10 * MIB, 0, 0), 0);
	cr_assert_eq(qt_request(&b, 2, 10 * MIB, 0, 0), 0);
	/* Settled what nobody granted; settled more than charged; a total that runs backwards;
	 * granted raised by itself. */
	a.page.granted = a.page.charged = a.page.settled = 500 * MIB;
	b.page.settled = MIB;
	qt_put(&b, 0);
	cr_assert(wire_credit_charge(&c.page, 0));
	c.page.fresh = 5 * MIB;
	quota_tick(q, 1);
	c.page.fresh = 4 * MIB;
	d.page.granted = 100 * MIB;
	quota_tick(q, 2);
	quota_tick(q, 3);
	cr_assert_eq(a.n_lies, 1);
	cr_assert_eq(b.n_lies, 1);
	cr_assert_eq(c.n_lies, 1);
	cr_assert_eq(qt_request(&a, 3, MIB, 0, 0), -EPERM);
	cr_assert_eq(a.page.granted, 0);
	/* The figure that d wrote is not believed, and is overwritten by the next grant. */
	cr_assert_eq(quota_outstanding(d.q), 0);
	cr_assert_eq(qt_request(&d, 4, MIB, 0, 0), 0);
	cr_assert_eq(d.page.granted, MIB);
}

/* A survey finds nothing of user 1. */
static void survey_nothing(void)
{
	quota_mark(q);
	quota_rebased(q, now);
	quota_looked(q, now);
}

/* A store that lied had the other stores of its user refused: what it said had come into being
 * was added to the user's sum. */
Test(quota_books, what_nobody_granted_did_not_come)
{
	qt_limit(WIRE_LIMIT_USER, "1", 100 * MIB, 0);
	qt_add(&a, 1, "", "a");
	qt_add(&b, 1, "", "b");
	cr_assert_eq(qt_request(&a, 1, 10 * MIB, 0, 0), 0);
	cr_assert(qt_put(&a, 10 * MIB));
	survey_nothing();
	cr_assert_not(quota_unsure(q));
	a.page.fresh += 500 * MIB;
	quota_tick(q, 1);
	cr_assert_eq(a.n_lies, 1);
	cr_assert_eq(qt_line_of(WIRE_LIMIT_USER, "1").used, 0);
	cr_assert_eq(qt_line_of(WIRE_LIMIT_USER, "1").outstanding, 0);
	cr_assert_eq(qt_request(&b, 2, 100 * MIB, 0, 0), 0);
}

Test(quota_books, what_a_liar_was_granted_counts_until_a_survey)
{
	struct quota_want want = {
		.serial = 2, .need = 90 * MIB, .look = true, .deadline_ns = NEVER};
	struct quota_answer got;

	qt_limit(WIRE_LIMIT_USER, "1", 100 * MIB, 0);
	qt_add(&a, 1, "", "a");
	qt_add(&b, 1, "", "b");
	survey_nothing();
	cr_assert_eq(qt_request(&a, 1, 60 * MIB, 0, 0), 0);
	/* It takes none of it. */
	cr_assert(qt_put(&a, 60 * MIB));
	quota_tick(q, 1);
	a.page.settled = 61 * MIB;
	quota_tick(q, 2);
	cr_assert_eq(a.n_lies, 1);
	cr_assert(quota_unsure(q), "a refusal wants a survey");
	cr_assert(quota_stale(q));
	cr_assert_eq(quota_request(q, b.q, &want, 0, &got), 1);
	survey_nothing();
	cr_assert_eq(n_answers, 1);
	cr_assert_eq(answers[0].error, 0);
}

Test(quota_books, what_a_page_says_of_an_earlier_life_wants_a_survey)
{
	struct quota_want want = {
		.serial = 1, .need = 90 * MIB, .look = true, .deadline_ns = NEVER};
	struct quota_answer got;

	qt_limit(WIRE_LIMIT_USER, "1", 100 * MIB, 0);
	qt_add(&b, 1, "", "b");
	survey_nothing();
	cr_assert_not(quota_unsure(q));
	a.page.epoch = 3;
	a.page.granted = a.page.charged = a.page.settled = a.page.fresh = UINT64_C(1) << 50;
	qt_add(&a, 1, "", "a");
	cr_assert(quota_unsure(q));
	cr_assert_eq(quota_request(q, b.q, &want, 0, &got), 1);
	survey_nothing();
	cr_assert_eq(n_answers, 1);
	cr_assert_eq(answers[0].error, 0);
}

Test(quota_books, what_came_before_a_limit_wants_a_survey)
{
	qt_add(&a, 1, "", "a");
	qt_add(&b, 1, "", "b");
	a.page.charged = a.page.settled = a.page.fresh = UINT64_C(1) << 50;
	quota_tick(q, 1);
	qt_limit(WIRE_LIMIT_USER, "1", 100 * MIB, 0);
	cr_assert(quota_unsure(q));
	cr_assert_eq(qt_request(&b, 1, 90 * MIB, 0, 0), -EDQUOT);
	survey_nothing();
	cr_assert_eq(qt_request(&b, 2, 90 * MIB, 0, 0), 0);
}

Test(quota_books, failing_charge_books_nothing)
{
	qt_limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	qt_add(&a, 1, "", "a");
	qt_add(&b, 1, "", "b");
	cr_assert_eq(qt_request(&a, 1, MIB, 0, 0), 0);
	/* Stopped in the midst of a charge that will fail. */
	a.page.charged = 5000 * MIB;
	for (uint64_t i = 0; i < 100; i++)
		quota_tick(q, i * SECOND);
	cr_assert_eq(a.n_lies, 0);
	cr_assert_eq(quota_outstanding(a.q), MIB);
	cr_assert_eq(qt_request(&b, 2, 99 * MIB, 0, 0), 0);
}

Test(quota_books, what_nobody_charged_is_taken_out_of_credit)
{
	qt_limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	qt_add(&a, 1, "", "a");
	cr_assert_eq(qt_request(&a, 1, 60 * MIB, 0, 0), 0);
	/* Another program's file, directories, pages of stores. */
	used_now = 70 * MIB;
	quota_tick(q, 1);
	cr_assert_eq(a.page.granted, 30 * MIB);
}
