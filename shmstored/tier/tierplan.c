/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierplan.c: the decisions of the tier's keeper.
 *
 * A second is long for memory: a partition may fill by a gigabyte in it. So where used has risen so
 * fast that it would pass the high mark before the next second's look, it is looked at LOOKS times
 * as often. A faster rise meets the library, which demotes before it says that a partition is full.
 *
 * Recycled files go first, by the stores themselves, which are asked for them at the same mark:
 * where these alone would do, we wait POOL_NS for them. An idle store gives nothing back before its
 * next call, so it is not waited for longer.
 *
 * Rejected: cutting all users down to one level (the busy ones would lose what they are at work on
 * while others' sleeps in memory).
 */
#include <stdlib.h>

#include "tierwork.h"

#define SECOND   UINT64_C(1000000000)
#define POOL_NS  SECOND
#define LOOK_NS  (SECOND / 20)
#define WAIT_MAX 6u /* 2^6 seconds */

static uint64_t part(uint64_t whole, unsigned percent)
{
	return (uint64_t)((__uint128_t)whole * percent / 100);
}

struct tierplan_marks tierplan_marks(uint64_t size, uint64_t hard, unsigned high, unsigned low)
{
	uint64_t whole = hard && (!size || hard < size) ? hard : size;
	struct tierplan_marks m = {.high = part(whole, high), .low = part(whole, low)};

	m.urgent = m.high + (whole - m.high) / 2;
	return m;
}

bool tierplan_due(struct tierplan *p, const struct tierplan_marks *m,
		  const struct tierplan_now *now)
{
	if (!m->high || now->used <= m->high) {
		p->above_since_ns = 0;
		return false;
	}
	if (!p->above_since_ns)
		p->above_since_ns = now->ns;
	if (now->ns < p->not_before_ns)
		return false;
	return now->pool < now->used - m->low || now->ns >= p->above_since_ns + POOL_NS ||
	       now->used >= m->urgent;
}

uint64_t tierplan_next_look(const struct tierplan_marks *m, const struct tierplan_now *before,
			    const struct tierplan_now *now)
{
	uint64_t rise;

	if (!m->high || now->used <= before->used || now->ns <= before->ns)
		return UINT64_MAX;
	rise = (uint64_t)((__uint128_t)(now->used - before->used) * SECOND /
			  (now->ns - before->ns));
	return now->used + rise > m->high ? now->ns + LOOK_NS : UINT64_MAX;
}

void tierplan_succeeded(struct tierplan *p)
{
	p->n_failed = 0;
	p->not_before_ns = 0;
}

uint64_t tierplan_failed(struct tierplan *p, uint64_t now_ns)
{
	uint64_t wait_ns = SECOND << (p->n_failed < WAIT_MAX ? p->n_failed : WAIT_MAX);

	p->n_failed++;
	p->not_before_ns = now_ns + wait_ns;
	return wait_ns;
}

void tierplan_forget(struct tierplan *p)
{
	*p = (struct tierplan){.above_since_ns = p->above_since_ns};
}

/* ---- whose ----------------------------------------------------------------------------------- */

static uint64_t excess(const struct tierplan_user *u)
{
	return u->bytes > u->share ? u->bytes - u->share : 0;
}

static int compare(bool idle_a, bool idle_b, uint64_t a, uint64_t b)
{
	if (idle_a != idle_b)
		return idle_a ? -1 : 1;
	return (a < b) - (a > b);
}

static int by_excess(const void *left, const void *right)
{
	const struct tierplan_user *a = left, *b = right;

	return compare(a->idle, b->idle, excess(a), excess(b));
}

static int by_bytes(const void *left, const void *right)
{
	const struct tierplan_user *a = left, *b = right;

	return compare(a->idle, b->idle, a->bytes, b->bytes);
}

/* Takes of(u) bytes from each user in order while there is need, and subtracts them from u's. */
static size_t take(struct tierplan_user *users, size_t n,
		   uint64_t (*of)(const struct tierplan_user *u), uint64_t *io_need,
		   struct tierplan_step *ret_steps)
{
	size_t n_steps = 0;

	for (size_t i = 0; i < n && *io_need; i++) {
		uint64_t bytes = of(&users[i]);

		if (bytes > *io_need)
			bytes = *io_need;
		if (!bytes)
			continue;
		ret_steps[n_steps++] = (struct tierplan_step){.uid = users[i].uid, .bytes = bytes};
		users[i].bytes -= bytes;
		*io_need -= bytes;
	}
	return n_steps;
}

static uint64_t all(const struct tierplan_user *u)
{
	return u->bytes;
}

size_t tierplan_steps(struct tierplan_user *users, size_t n, uint64_t low, uint64_t need,
		      struct tierplan_step *ret_steps)
{
	size_t n_steps;

	if (!n)
		return 0;
	for (size_t i = 0; i < n; i++) {
		if (!users[i].share)
			users[i].share = low / n;
	}
	qsort(users, n, sizeof(*users), by_excess);
	n_steps = take(users, n, excess, &need, ret_steps);
	qsort(users, n, sizeof(*users), by_bytes);
	return n_steps + take(users, n, all, &need, ret_steps + n_steps);
}
