/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbdetect.c: which task rolls back or splits when none can go on by itself. One action per run.
 *
 *   D0   grant what fits: the pump has done it, but for who is below one that closed its pool;
 *        where D2 would act, these come first
 *   D2   all tasks are stalled and somebody is BLOCKED: the lowest of these gets RETRY. After
 *        suspect_ticks of silence tasks that may be stalled count as if they were
 *   D3   all are stalled for certain, or may be after split_ticks of silence, and nobody is
 *        BLOCKED: the best that rolled back may run alone, once until there is progress, if its
 *        need fits; else it is told to split
 *   early   two or more requests of a pool can never be met, whatever all others give back: the
 *        lowest of them that holds something gets RETRY although others still run. Never a SPLIT
 *
 * A task that rolls back is not stalled, so that a decision waits for what it brings.
 */
#include "arbcore.h"

static struct arb_context *lowest_blocked(const struct arb *a)
{
	struct arb_context *lowest = NULL;
	struct arb_want *w;

	for (struct arb_pool *p = a->pools; p; p = p->hh.next) {
		w = p->n_waiting ? arbline_worst_blocked(&p->waiting) : NULL;
		if (w && (!lowest || arb_rank_cmp(&w->context->rank, &lowest->rank) > 0))
			lowest = w->context;
	}
	return lowest;
}

/* The best of those who are parked after a roll back; not of those who still roll back. */
static struct arb_context *best_rolled(const struct arb *a)
{
	struct arb_context *best = NULL;
	struct arb_want *w;

	for (struct arb_pool *p = a->pools; p; p = p->hh.next) {
		for (w = p->n_rolled ? arbline_best(&p->rolled) : NULL;
		     w && w->context->state != ARB_BUFN;)
			w = arbline_next(w);
		if (w && (!best || arb_rank_cmp(&w->context->rank, &best->rank) < 0))
			best = w->context;
	}
	return best;
}

static bool all_stalled(const struct arb *a, enum arb_knob silence)
{
	if (!a->n_live_tasks)
		return false;
	return a->n_stalled == a->n_live_tasks ||
	       (a->silent >= (uint64_t)a->knobs[silence] && a->n_maybe == a->n_live_tasks);
}

static bool may_split(struct arb *a)
{
	if (a->silent >= (uint64_t)a->knobs[ARB_KNOB_SPLIT_TICKS])
		return true;
	return a->n_stalled == a->n_live_tasks && arbtask_all_certain(a);
}

static bool split_or_solo(struct arb *a)
{
	struct arb_context *c;

	if (!a->n_bufn || !all_stalled(a, ARB_KNOB_SPLIT_TICKS) || !may_split(a))
		return false;
	c = best_rolled(a);
	if (!c)
		return false;
	if (c->solo_epoch != a->epoch && arbfit_attempt(c)) {
		c->solo_epoch = a->epoch;
		arbroll_out(a, c, "all are stalled, and its attempt fits: alone");
	} else {
		arbroll_split(a, c, "all are stalled, and its attempt does not fit");
	}
	return true;
}

static bool early(struct arb *a)
{
	struct arb_want *w;

	if (!a->knobs[ARB_KNOB_EARLY_DETECT] || a->early_done)
		return false;
	for (struct arb_pool *p = a->pools; p; p = p->hh.next) {
		w = p->look ? arbstuck_victim(a, p) : NULL;
		p->look = false;
		if (!w)
			continue;
		a->early_done = true;
		arbroll_back(a, w->context, "its request and others can never be met together");
		return true;
	}
	return false;
}

bool arbdetect_run(struct arb *a)
{
	struct arb_context *c;

	a->look = false;
	a->totals.n_detects++;
	if (!a->n_parked)
		return false;
	if (a->n_blocked && all_stalled(a, ARB_KNOB_SUSPECT_TICKS)) {
		if (arbpump_past(a))
			return true;
		c = lowest_blocked(a);
		if (c) {
			arbroll_back(a, c, "all are stalled, and it is the lowest");
			return true;
		}
	}
	if (!a->n_blocked && split_or_solo(a))
		return true;
	return a->n_blocked > 1 && early(a);
}
