/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of quota.h, call by call, over a world of fixed numbers: used is what the test says, pages are structs of its own.
 * test_quota_model.c plays the histories.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "quota.h"

#define MIB    (UINT64_C(1) << 20)
#define CREDIT (64 * MIB)
#define NEVER  UINT64_MAX
#define SECOND UINT64_C(1000000000)

struct store {
	struct wire_credit page;
	struct quota_share share;
	struct quota_store *q;
	uint64_t asked;
	uint32_t n_asked;
	const char *lie;
	uint32_t n_lies;
};

static struct store a, b, c, d;
static struct quota *q;
static uint64_t used_now, now;
static struct {
	uint64_t serial;
	int error;
	struct quota_answer answer;
} answers[16];
static size_t n_answers;
static struct {
	enum wire_limit kind;
	char id[16];
	int level;
} levels[16];
static size_t n_levels;

static uint64_t used(void *arg)
{
	(void)arg;
	return used_now;
}

static struct wire_credit *credit(void *arg, struct quota_store *s)
{
	(void)arg;
	return &((struct store *)quota_user(s))->page;
}

static void share(void *arg, struct quota_store *s, struct quota_share *ret)
{
	(void)arg;
	*ret = ((struct store *)quota_user(s))->share;
}

static void answer(void *arg, struct quota_store *s, uint64_t serial, int error, const struct quota_answer *why)
{
	(void)arg;
	(void)s;
	cr_assert_lt(n_answers, 16);
	answers[n_answers].serial = serial;
	answers[n_answers].error = error;
	answers[n_answers++].answer = *why;
}

static void ask(void *arg, struct quota_store *s, uint64_t bytes)
{
	struct store *t = quota_user(s);

	(void)arg;
	t->asked = bytes;
	t->n_asked++;
}

static void level(void *arg, const struct quota_line *line)
{
	(void)arg;
	cr_assert_lt(n_levels, 16);
	levels[n_levels].kind = line->kind;
	levels[n_levels].level = line->level;
	snprintf(levels[n_levels++].id, sizeof(levels[0].id), "%s", line->id);
}

static void liar(void *arg, struct quota_store *s, const char *what)
{
	struct store *t = quota_user(s);

	(void)arg;
	t->lie = what;
	t->n_lies++;
}

static const struct quota_ops ops = {used, credit, share, answer, ask, level, liar, NULL};

static void start(void)
{
	static const struct quota_config config = {
		.epoch = 7, .credit = CREDIT, .idle_ns = 2 * SECOND, .pledge_ns = SECOND, .waits_max = 4};

	cr_assert_eq(quota_new(&config, &ops, &q), 0);
	used_now = 0;
	now = 0;
}

static void stop(void)
{
	q = quota_free(q);
}

static void limit(enum wire_limit kind, const char *id, uint64_t hard, uint64_t soft)
{
	struct quota_limits l = {hard, soft, 0};

	cr_assert_eq(quota_limit(q, kind, id, &l, 0), 0);
}

static void add(struct store *s, uid_t uid, const char *label, const char *name)
{
	cr_assert_eq(quota_add(q, uid, label, name, s, 0, &s->q), 0);
}

static int request(struct store *s, uint64_t serial, uint64_t need, uint64_t ahead, uint64_t deadline)
{
	struct quota_want want = {serial, need, ahead, deadline != 0, deadline};
	struct quota_answer got;

	return quota_request(q, s->q, &want, now, &got);
}

/* A put of n bytes from beginning to end. */
static bool put(struct store *s, uint64_t n)
{
	if (!wire_credit_charge(&s->page, n))
		return false;
	used_now += n;
	wire_credit_settle(&s->page, n, n);
	return true;
}

static struct quota_line line_of(enum wire_limit kind, const char *id);
static struct quota_line found;
static enum wire_limit wanted_kind;
static const char *wanted_id;

static int find(const struct quota_line *line, void *arg)
{
	(void)arg;
	if (line->kind == wanted_kind && strcmp(line->id, wanted_id) == 0)
		found = *line;
	return 0;
}

static struct quota_line line_of(enum wire_limit kind, const char *id)
{
	found = (struct quota_line){0};
	wanted_kind = kind;
	wanted_id = id;
	cr_assert_eq(quota_each(q, find, NULL), 0);
	return found;
}

TestSuite(quota, .init = start, .fini = stop);

Test(quota, without_limits_all_is_granted)
{
	add(&a, 1, "", "a");
	cr_assert_eq(a.page.granted, WIRE_UNLIMITED);
	cr_assert_eq(a.page.epoch, 7);
	cr_assert_eq(a.page.credit, CREDIT);
	cr_assert(put(&a, 500 * MIB));
	cr_assert_eq(request(&a, 1, MIB, 0, 0), 0);
	cr_assert_eq(quota_outstanding(a.q), 0);
}

Test(quota, grant_is_need_and_ahead)
{
	struct quota_want want = {1, 3 * MIB, CREDIT, false, 0};
	struct quota_answer got;

	limit(WIRE_LIMIT_PARTITION, "", 1024 * MIB, 0);
	add(&a, 1, "", "a");
	cr_assert_eq(a.page.granted, 0);
	cr_assert_eq(quota_request(q, a.q, &want, 0, &got), 0);
	cr_assert_eq(got.bytes, 3 * MIB + CREDIT);
	cr_assert_eq(a.page.granted, got.granted);
	/* What is there is enough. */
	want.serial = 2;
	cr_assert_eq(quota_request(q, a.q, &want, 0, &got), 0);
	cr_assert_eq(got.bytes, 0);
}

Test(quota, ahead_shrinks_as_the_limit_comes_near)
{
	uint64_t before;

	limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	add(&a, 1, "", "a");
	add(&b, 1, "", "b");
	cr_assert_eq(request(&a, 1, MIB, CREDIT, 0), 0);
	cr_assert_leq(a.page.granted, 51 * MIB);
	cr_assert_eq(request(&b, 2, MIB, CREDIT, 0), 0);
	cr_assert_leq(b.page.granted, 14 * MIB);
	before = b.page.granted;
	used_now = 100 * MIB - a.page.granted - before - MIB;
	cr_assert_eq(request(&b, 3, before + MIB, CREDIT, 0), 0);
	cr_assert_eq(b.page.granted, before + MIB, "no room, nothing ahead");
}

Test(quota, refusal_names_the_limit)
{
	struct quota_want want = {1, 11 * MIB, 0, false, 0};
	struct quota_answer got;

	limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	limit(WIRE_LIMIT_USER, "1", 10 * MIB, 0);
	limit(WIRE_LIMIT_LABEL, "dask", 5 * MIB, 0);
	add(&a, 1, "", "a");
	add(&b, 2, "dask", "b");
	add(&c, 3, "", "c");
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
	cr_assert_eq(line_of(WIRE_LIMIT_PARTITION, "").n_refused, 1);
}

Test(quota, bad_requests_are_invalid)
{
	add(&a, 1, "", "a");
	cr_assert_eq(request(&a, 0, MIB, 0, 0), -EINVAL);
	cr_assert_eq(request(&a, 1, 0, 0, 0), -EINVAL);
	cr_assert_eq(request(&a, 1, WIRE_GRANT_MAX + 1, 0, 0), -EINVAL);
	limit(WIRE_LIMIT_PARTITION, "", 10 * MIB, 0);
	used_now = 10 * MIB;
	cr_assert_eq(request(&a, 1, MIB, 0, NEVER), 1);
	cr_assert_eq(request(&a, 1, MIB, 0, NEVER), -EINVAL, "serial 1 waits");
	for (uint64_t serial = 2; serial <= 4; serial++)
		cr_assert_eq(request(&a, serial, MIB, 0, NEVER), 1);
	cr_assert_eq(request(&a, 5, MIB, 0, NEVER), -EMFILE);
	/* What can never be is not waited for. */
	cr_assert_eq(request(&a, 6, 11 * MIB, 0, NEVER), -ENOSPC);
}

Test(quota, unspent_credit_of_others_is_taken)
{
	limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	add(&a, 1, "", "a");
	add(&b, 1, "", "b");
	cr_assert_eq(request(&a, 1, 60 * MIB, 0, 0), 0);
	cr_assert(put(&a, 10 * MIB));
	/* It said that it needs them: it has a second. */
	cr_assert_eq(request(&b, 2, 41 * MIB, 0, 0), -ENOSPC);
	cr_assert_eq(a.page.granted, 60 * MIB);
	now = SECOND;
	/* a is stopped now: its page is all that we need. */
	cr_assert_eq(request(&b, 2, 90 * MIB, 0, 0), 0);
	cr_assert_eq(a.page.granted, 10 * MIB);
	cr_assert_not(wire_credit_charge(&a.page, 1));
	cr_assert_eq(request(&b, 3, 91 * MIB, 0, 0), -ENOSPC);
}

Test(quota, idle_credit_is_taken_first)
{
	limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	add(&a, 1, "", "a");
	add(&b, 1, "", "b");
	add(&c, 1, "", "c");
	cr_assert_eq(request(&a, 1, 40 * MIB, 0, 0), 0);
	cr_assert_eq(request(&b, 2, 40 * MIB, 0, 0), 0);
	/* Nobody charges: both are idle after a while, and give all back; b gets it again. */
	quota_tick(q, 3 * SECOND);
	cr_assert_eq(a.page.granted, 0);
	cr_assert_eq(request(&b, 3, 40 * MIB, 0, 0), 0);
	cr_assert_eq(request(&a, 4, 40 * MIB, 0, 0), 0);
	/* Only one charges. */
	put(&b, MIB);
	quota_tick(q, 4 * SECOND);
	put(&b, MIB);
	quota_tick(q, 6 * SECOND);
	cr_assert_eq(a.page.granted, 0);
	cr_assert_eq(b.page.granted, 40 * MIB);
}

Test(quota, waits_are_served_in_order)
{
	limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	add(&a, 1, "", "a");
	add(&b, 2, "", "b");
	used_now = 100 * MIB;
	cr_assert_eq(request(&a, 1, 50 * MIB, 0, NEVER), 1);
	cr_assert_eq(request(&b, 2, 10 * MIB, 0, NEVER), 1);
	/* 10 would fit, but 50 is first: neither by waiting nor by not waiting is it overtaken. */
	used_now = 80 * MIB;
	quota_serve(q, 1);
	cr_assert_eq(n_answers, 0);
	cr_assert_eq(request(&b, 3, MIB, 0, 0), -ENOSPC);
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
	limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	limit(WIRE_LIMIT_USER, "1", 10 * MIB, 0);
	add(&a, 1, "", "a");
	add(&b, 2, "", "b");
	add(&c, 1, "", "c");
	cr_assert_eq(request(&a, 1, 10 * MIB, 0, 0), 0);
	cr_assert(put(&a, 10 * MIB));
	cr_assert_eq(request(&a, 2, 5 * MIB, 0, NEVER), 1);
	cr_assert_eq(request(&c, 3, MIB, 0, 0), -EDQUOT);
	cr_assert_eq(request(&b, 4, 50 * MIB, 0, 0), 0);
	/* Of those that wait likewise. */
	cr_assert_eq(request(&b, 5, 95 * MIB, 0, NEVER), 1);
	cr_assert_eq(n_answers, 0);
	used_now = 5 * MIB;
	quota_serve(q, 1);
	cr_assert_eq(n_answers, 1);
	cr_assert_eq(answers[0].serial, 5);
	cr_assert_eq(line_of(WIRE_LIMIT_USER, "1").n_waiting, 1);
}

/* b waits for its user and for its label; others of either come and go as the other one is what holds b. */
Test(quota, crossing_limits_starve_nobody)
{
	bool served = false;

	limit(WIRE_LIMIT_USER, "1", 10 * MIB, 0);
	limit(WIRE_LIMIT_LABEL, "x", 10 * MIB, 0);
	add(&a, 1, "y", "a");
	add(&b, 1, "x", "b");
	add(&c, 2, "x", "c");
	cr_assert_eq(request(&a, 1, 10 * MIB, 0, 0), 0);
	cr_assert(put(&a, 10 * MIB));
	cr_assert_eq(request(&b, 2, 10 * MIB, 0, NEVER), 1);
	for (int i = 0; i < 20 && !served; i++) {
		struct store *gives = i % 2 ? &c : &a, *takes = i % 2 ? &a : &c;

		/* The one that has all asks nothing; the other side's takes what is free, and then it gives all back. */
		if (request(takes, 10 + (uint64_t)i, 10 * MIB, 0, 0) == 0)
			cr_assert(put(takes, 10 * MIB));
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
	limit(WIRE_LIMIT_PARTITION, "", 10 * MIB, 0);
	add(&a, 1, "", "a");
	used_now = 10 * MIB;
	cr_assert_eq(quota_deadline(q), UINT64_MAX);
	cr_assert_eq(request(&a, 1, MIB, 0, 500), 1);
	cr_assert_eq(request(&a, 2, MIB, 0, 300), 1);
	cr_assert_eq(request(&a, 3, MIB, 0, NEVER), 1);
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
	cr_assert_eq(line_of(WIRE_LIMIT_PARTITION, "").n_waiting, 0);
}

Test(quota, death_returns_credit)
{
	limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	add(&a, 1, "", "a");
	add(&b, 1, "", "b");
	cr_assert_eq(request(&a, 1, 100 * MIB, 0, 0), 0);
	cr_assert(wire_credit_charge(&a.page, 90 * MIB));
	cr_assert_eq(request(&b, 2, 50 * MIB, 0, NEVER), 1);
	quota_serve(q, 1);
	cr_assert_eq(n_answers, 0);
	quota_remove(q, a.q, 2);
	cr_assert_eq(n_answers, 1);
	cr_assert_eq(answers[0].serial, 2);
	cr_assert_eq(answers[0].error, 0);
}

Test(quota, users_keep_what_their_dead_stores_left)
{
	uint64_t books;

	limit(WIRE_LIMIT_USER, "1", 10 * MIB, 0);
	add(&a, 1, "", "a");
	add(&b, 1, "", "b");
	cr_assert_eq(request(&a, 1, 8 * MIB, 0, 0), 0);
	cr_assert(put(&a, 8 * MIB));
	quota_remove(q, a.q, 0);
	cr_assert(a.page.flags & WIRE_CREDIT_GONE);
	cr_assert_eq(b.page.user_base, 8 * MIB);
	cr_assert_eq(request(&b, 2, 3 * MIB, 0, 0), -EDQUOT);
	books = quota_books(q);
	quota_freed(q, books, 1, "", 8 * MIB, 0);
	cr_assert_eq(b.page.user_base, 0);
	cr_assert_eq(request(&b, 3, 3 * MIB, 0, 0), 0);
}

Test(quota, survey_corrects_users)
{
	struct quota_mark *mark;
	uint64_t books;

	limit(WIRE_LIMIT_USER, "*", 10 * MIB, 0);
	limit(WIRE_LIMIT_LABEL, "x", 20 * MIB, 0);
	add(&a, 1, "x", "a");
	cr_assert_eq(a.page.user_hard, 10 * MIB);
	cr_assert(a.page.flags & WIRE_CREDIT_LAST);
	cr_assert_eq(request(&a, 1, 6 * MIB, 0, 0), 0);
	books = quota_books(q);
	mark = quota_mark(q);
	cr_assert_null(quota_mark(q), "one at a time");
	cr_assert(put(&a, 2 * MIB));
	/* It found 5 of user 1, kept ones perhaps; and whether it saw these 2, who knows. */
	quota_rebase(q, mark, WIRE_LIMIT_USER, "1", 5 * MIB);
	quota_rebased(q, mark, 0);
	cr_assert_eq(line_of(WIRE_LIMIT_USER, "1").used, 7 * MIB);
	cr_assert_eq(line_of(WIRE_LIMIT_LABEL, "x").used, 2 * MIB);
	/* A reap that began before that survey's end is left to the next one. */
	quota_freed(q, books, 1, "x", 5 * MIB, 0);
	cr_assert_eq(line_of(WIRE_LIMIT_USER, "1").used, 7 * MIB);
	cr_assert(quota_stale(q));
	mark = quota_mark(q);
	cr_assert_not(quota_stale(q));
	quota_rebase(q, mark, WIRE_LIMIT_USER, "1", 2 * MIB);
	quota_rebase(q, mark, WIRE_LIMIT_LABEL, "x", 2 * MIB);
	quota_rebased(q, mark, 0);
	cr_assert_eq(line_of(WIRE_LIMIT_USER, "1").used, 2 * MIB);
	quota_mark_free(quota_mark(q));
	cr_assert(quota_stale(q), "a survey that failed is owed");
}

Test(quota, limits_change_at_run_time)
{
	add(&a, 1, "", "a");
	cr_assert(put(&a, 30 * MIB));
	cr_assert(wire_credit_charge(&a.page, 5 * MIB));
	limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	/* What is in flight is outstanding; nothing else may be charged now. */
	cr_assert_eq(quota_outstanding(a.q), 5 * MIB);
	cr_assert_not(wire_credit_charge(&a.page, 1));
	cr_assert_eq(a.page.partition_hard, 100 * MIB);
	cr_assert_eq(request(&a, 1, 60 * MIB, 0, 0), 0);
	/* Below what is granted: what is not spent comes back at once. */
	limit(WIRE_LIMIT_PARTITION, "", 40 * MIB, 0);
	cr_assert_leq(used_now + quota_outstanding(a.q), 40 * MIB);
	cr_assert_eq(request(&a, 2, 39 * MIB, 0, 0), -ENOSPC);
	limit(WIRE_LIMIT_PARTITION, "", 0, 0);
	cr_assert_eq(a.page.granted, WIRE_UNLIMITED);
	cr_assert_eq(a.page.partition_hard, 0);
	limit(WIRE_LIMIT_STORE, "a", 50 * MIB, 0);
	cr_assert_eq(a.page.store_hard, 50 * MIB);
	cr_assert_eq(a.page.granted, WIRE_UNLIMITED, "its owner keeps that limit");
}

Test(quota, limit_that_is_lifted_serves_waits)
{
	limit(WIRE_LIMIT_USER, "*", 10 * MIB, 0);
	limit(WIRE_LIMIT_USER, "1", 20 * MIB, 0);
	add(&a, 1, "", "a");
	add(&b, 2, "", "b");
	cr_assert_eq(a.page.user_hard, 20 * MIB);
	cr_assert_eq(b.page.user_hard, 10 * MIB);
	cr_assert_eq(request(&a, 1, 20 * MIB, 0, 0), 0);
	cr_assert(put(&a, 20 * MIB));
	cr_assert_eq(request(&a, 2, MIB, 0, NEVER), 1);
	limit(WIRE_LIMIT_USER, "1", 30 * MIB, 0);
	cr_assert_eq(n_answers, 1);
	cr_assert_eq(answers[0].error, 0);
	/* Back to what * says: 10, less than what is there. */
	limit(WIRE_LIMIT_USER, "1", QUOTA_DEFAULT, QUOTA_DEFAULT);
	cr_assert_eq(a.page.user_hard, 10 * MIB);
	cr_assert_eq(request(&a, 3, 2 * MIB, 0, 0), -EDQUOT);
	/* A wait for what a lowered limit can never give ends. */
	cr_assert_eq(request(&a, 4, 9 * MIB, 0, NEVER), 1);
	limit(WIRE_LIMIT_USER, "*", 8 * MIB, 0);
	cr_assert_eq(n_answers, 2);
	cr_assert_eq(answers[1].error, -EDQUOT);
}

Test(quota, bad_limits_are_invalid)
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

Test(quota, asks_over_soft_until_below_low)
{
	struct quota_limits l = {0, 100 * MIB, 60 * MIB};

	cr_assert_eq(quota_limit(q, WIRE_LIMIT_PARTITION, "", &l, 0), 0);
	add(&a, 1, "", "a");
	add(&b, 1, "", "b");
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

Test(quota, who_waits_at_hard_has_others_asked)
{
	limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	add(&a, 1, "", "a");
	add(&b, 1, "", "b");
	b.share = (struct quota_share){.linked = 70 * MIB, .pool = 20 * MIB};
	used_now = 95 * MIB;
	cr_assert_eq(request(&a, 1, 15 * MIB, 0, NEVER), 1);
	cr_assert_eq(b.asked, 10 * MIB);
	cr_assert_eq(n_levels, 1);
	cr_assert_eq(levels[0].level, 2);
	used_now = 80 * MIB;
	quota_tick(q, 1);
	cr_assert_eq(n_answers, 1);
	cr_assert_eq(b.asked, 0);
	cr_assert_eq(levels[n_levels - 1].level, 0);
}

Test(quota, successor_reads_the_pages)
{
	struct quota_answer got;
	struct quota_want want = {1, 21 * MIB, 0, false, 0};

	limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	limit(WIRE_LIMIT_USER, "1", 90 * MIB, 0);
	add(&a, 1, "", "a");
	add(&b, 1, "", "b");
	add(&d, 1, "", "d");
	cr_assert_eq(request(&d, 9, MIB, 0, 0), 0);
	cr_assert(put(&d, MIB));
	quota_remove(q, d.q, 0);
	cr_assert_eq(request(&a, 1, 60 * MIB, 0, 0), 0);
	cr_assert(put(&a, 10 * MIB));
	q = quota_free(q);

	cr_assert_eq(quota_new(&(struct quota_config){8, CREDIT, SECOND, SECOND, 4}, &ops, &q), 0);
	limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	limit(WIRE_LIMIT_USER, "1", 90 * MIB, 0);
	add(&a, 1, "", "a");
	add(&b, 1, "", "b");
	cr_assert_eq(a.page.epoch, 8);
	cr_assert_eq(a.page.granted, 60 * MIB);
	cr_assert_eq(quota_outstanding(a.q), 50 * MIB);
	cr_assert_eq(line_of(WIRE_LIMIT_USER, "1").used, 11 * MIB);
	/* 11 are used, 50 outstanding: of user 1, 29 are left, and 50 could be taken from a. */
	cr_assert_eq(quota_request(q, b.q, &want, 0, &got), 0);
	cr_assert_eq(a.page.granted, 60 * MIB);
}

Test(quota, pages_of_an_earlier_life_are_not_believed_all)
{
	limit(WIRE_LIMIT_PARTITION, "", 1024 * MIB, 0);
	limit(WIRE_LIMIT_USER, "1", 10 * MIB, 0);
	a.page.epoch = b.page.epoch = 3;
	/* Says that it may charge the whole partition, and that it has as much in flight. */
	a.page.granted = 1 << 30;
	b.page.charged = b.page.granted = UINT64_C(1) << 50;
	add(&a, 1, "", "a");
	add(&b, 1, "", "b");
	add(&c, 2, "", "c");
	cr_assert_leq(quota_outstanding(a.q), 4 * CREDIT);
	cr_assert_leq(quota_outstanding(b.q), 10 * MIB + 4 * CREDIT);
	cr_assert_eq(request(&c, 1, 500 * MIB, 0, 0), 0);
}

Test(quota, liars_get_nothing_more)
{
	limit(WIRE_LIMIT_PARTITION, "", 1024 * MIB, 0);
	add(&a, 1, "", "a");
	add(&b, 1, "", "b");
	add(&c, 1, "", "c");
	add(&d, 1, "", "d");
	cr_assert_eq(request(&a, 1, 10 * MIB, 0, 0), 0);
	cr_assert_eq(request(&b, 2, 10 * MIB, 0, 0), 0);
	/* Settled what nobody granted; settled more than charged; a total that runs backwards; granted raised by itself. */
	a.page.granted = a.page.charged = a.page.settled = 500 * MIB;
	b.page.settled = MIB;
	put(&b, 0);
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
	cr_assert_eq(request(&a, 3, MIB, 0, 0), -EPERM);
	cr_assert_eq(a.page.granted, 0);
	/* What d wrote is not believed, and is overwritten by the next grant. */
	cr_assert_eq(quota_outstanding(d.q), 0);
	cr_assert_eq(request(&d, 4, MIB, 0, 0), 0);
	cr_assert_eq(d.page.granted, MIB);
}

Test(quota, failing_charge_books_nothing)
{
	limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	add(&a, 1, "", "a");
	add(&b, 1, "", "b");
	cr_assert_eq(request(&a, 1, MIB, 0, 0), 0);
	/* Stopped in the midst of a charge that will fail. */
	a.page.charged = 5000 * MIB;
	for (uint64_t i = 0; i < 100; i++)
		quota_tick(q, i * SECOND);
	cr_assert_eq(a.n_lies, 0);
	cr_assert_eq(quota_outstanding(a.q), MIB);
	cr_assert_eq(request(&b, 2, 99 * MIB, 0, 0), 0);
}

Test(quota, what_nobody_charged_is_taken_out_of_credit)
{
	limit(WIRE_LIMIT_PARTITION, "", 100 * MIB, 0);
	add(&a, 1, "", "a");
	cr_assert_eq(request(&a, 1, 60 * MIB, 0, 0), 0);
	/* Another program's file, directories, pages of stores. */
	used_now = 70 * MIB;
	quota_tick(q, 1);
	cr_assert_eq(a.page.granted, 30 * MIB);
}
