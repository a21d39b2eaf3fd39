/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbpump.c: who gets bytes now, and who rolls back or splits when none can go on by itself.
 *
 * The pump of a pool runs after every event that can help somebody in it: best first, everything
 * that fits. It grants free bytes; ALLOC contexts that can not be helped by spills any more are
 * BLOCKED; BLOCKED ones that can be are ALLOC. Each finds its man by the sums of the line, so that
 * requests beyond help are not looked at.
 *
 * Progress lets out rolled-back contexts, if all that their attempt needs fits: one pass, best
 * first, over these and the waiting ones. Frees alone do not: a task that frees and takes again all
 * the time would drive others from one roll back into the next.
 *
 * A waiter that was passed max_bypass times closes its pool for everybody below it. Not where
 * all are stalled: then nothing comes that it could wait for, and any request that fits is
 * served before one is rolled back.
 */
#include "arbcore.h"

static void grant(struct arb *a, struct arb_context *c, const char *note)
{
	arbpark_leave_line(a, c);
	arbask_grant(a, c, c->ask);
	arbpark_complete(a, c, ARB_OK, NULL);
	arbpark_state(a, c, ARB_RUNNING, ARB_OK, note);
}

/* Of those who wait in p the best that can be granted, or made ALLOC; not
 * below who closed the pool. */
static struct arb_want *next_waiter(const struct arb *a, struct arb_pool *p, bool grantable)
{
	/* For nothing there is room, also where the pool is over its capacity. */
	int64_t limit = MAX(grantable ? arbpool_free(p) : arbpool_reach(p), 0);
	struct arb_want *w = NULL;

	for (;;) {
		w = arbline_best_fit(&p->waiting, limit, w, !grantable);
		if (!w || arbfit_closed(a, p, &w->context->rank))
			return NULL;
		if (w->context->ask->n == 1)
			return w;
		/* it asks for nothing here, and is ALLOC elsewhere */
		if (!grantable && w->context->state != ARB_BLOCKED)
			continue;
		if (arbfit_ask(w->context->ask) >= (grantable ? ARB_FIT_FREE : ARB_FIT_SPILL) &&
		    !arbfit_ask_closed(a, w->context, w->context->ask))
			return w;
	}
}

/* An ALLOC below who closed the pool since: no spill is for it now. */
static struct arb_want *closed_out(const struct arb *a, struct arb_pool *p)
{
	struct arb_want *w = arbline_worst_alloc(&p->waiting, a->past);

	return w && arbfit_closed(a, p, &w->context->rank) ? w : NULL;
}

/* Those who were ALLOC when more was freed, and it was not enough: ALLOC_FREE. */
static void mark_freed(struct arb *a, struct arb_pool *p)
{
	struct arb_context *c;

	while (p->fresh) {
		c = p->fresh->context;
		ARB_EACH_WANT(w, c->ask) {
			if (w->fresh)
				DL_DELETE2(w->pool->fresh, w, fprev, fnext);
			w->fresh = false;
		}
		arbpark_state(a, c, ARB_ALLOC_FREE, ARB_OK, "somebody freed meanwhile");
	}
}

static void pump(struct arb *a, struct arb_pool *p)
{
	struct arb_want *w;
	bool freed = p->freed;

	p->freed = false;
	if (!p->n_waiting) {
		if (p->jobs)
			arbspill_balance(a, p);
		return;
	}
	while ((w = next_waiter(a, p, true)) != NULL)
		grant(a, w->context, "fits now");
	if (a->past && arbfit_ask(a->past->ask) == ARB_FIT_FREE)
		grant(a, a->past, "fits now");
	while ((w = arbline_over(&p->waiting, MAX(arbpool_reach(p), 0), true)) != NULL ||
	       (w = closed_out(a, p)) != NULL)
		arbpark_set_alloc(a, w->context, false);
	if (freed)
		mark_freed(a, p);
	/* With nothing to spill here, a request can be ALLOC only for spills elsewhere. */
	while ((p->reclaimable || p->n_several) && (w = next_waiter(a, p, false)) != NULL)
		arbpark_set_alloc(a, w->context, true);
	arbspill_balance(a, p);
}

/* The best BLOCKED request that fits, even in a closed pool. */
static struct arb_want *best_closed_out(const struct arb *a)
{
	struct arb_want *best = NULL, *w;

	for (const struct arb_pool *p = a->pools; p; p = p->hh.next) {
		const int64_t limit = MAX(arbpool_reach(p), 0);

		w = arbline_best_fit(&p->waiting, limit, NULL, true);
		while (w && (w->context->state != ARB_BLOCKED ||
			     arbfit_ask(w->context->ask) == ARB_FIT_NOT))
			w = arbline_best_fit(&p->waiting, limit, w, true);
		if (w && (!best || arb_rank_cmp(&w->context->rank, &best->context->rank) < 0))
			best = w;
	}
	return best;
}

/* All are stalled: who fits is served past who closed its pool. False: nobody fits. */
static bool serve_past(struct arb *a)
{
	struct arb_want *w = best_closed_out(a);

	if (!w)
		return false;
	if (arbfit_ask(w->context->ask) == ARB_FIT_FREE) {
		grant(a, w->context, "all are stalled, and it fits");
	} else {
		a->past = w->context;
		arbpark_set_alloc(a, w->context, true);
	}
	return true;
}

/* ---- attempts -------------------------------------------------------------------------------- */

/*
 * A context that is told RETRY remembers the need of its attempt: what it held and the request that
 * failed. It waits in the lines "rolled" of these pools, and is let out with a promise: what it
 * still lacks of its need is not given to others who are let out. The promise ends when it is kept,
 * when the attempt ends, or when it is rolled back again.
 *
 * A context's outcomes are counted until anybody makes progress: one that busy neighbours roll back
 * goes on, one that turns in circles ends with NOMEM.
 */

/* true: one outcome more than is allowed without progress. */
static bool over_limit(struct arb *a, struct arb_context *c)
{
	if (c->outcome_era != a->era) {
		c->outcome_era = a->era;
		c->n_outcomes = 0;
	}
	if (c->n_outcomes >= a->knobs[ARB_KNOB_RETRY_LIMIT])
		return true;
	c->n_outcomes++;
	return false;
}

static void roll_back(struct arb *a, struct arb_context *c, const char *note)
{
	struct arb_ask *ask = c->ask;
	uint32_t n = ask->n;
	struct arb_account *account = ask->want[0].account;
	enum arb_outcome o = over_limit(a, c) ? ARB_NOMEM : ARB_RETRY;
	const char *why = o == ARB_NOMEM ? arbseen_why(a, ask) : NULL;

	arbpark_state(a, c, ARB_BUFN_THROW, ARB_OK, note);
	arbpark_leave_line(a, c);
	account->stats.n_retries++;
	ask->want[0].pool->n_retries++;
	a->totals.n_retries++;
	a->totals.n_nomem += o == ARB_NOMEM;
	arbpark_lose(a, c, account);
	arbpark_end_promise(c);
	arbpark_complete(a, c, o, why);
	c->ask = c->attempt; /* what it asked for is what the next attempt needs */
	c->attempt = ask;
	c->ask->n = 0;
	ask->n = n;
	arbpark_line_up(a, c, ARB_LINE_ROLLED, false);
	arbpark_state(a, c, ARB_BUFN_WAIT, o, note);
}

static void split(struct arb *a, struct arb_context *c, const char *note)
{
	struct arb_want *w = c->attempt->want;
	enum arb_outcome o = over_limit(a, c) ? ARB_NOMEM : ARB_SPLIT;
	const char *why = arbseen_why(a, c->attempt);

	arbpark_state(a, c, ARB_SPLIT_THROW, ARB_OK, note);
	w->account->stats.n_splits++;
	w->pool->n_splits++;
	a->totals.n_splits++;
	a->totals.n_nomem += o == ARB_NOMEM;
	arbpark_lose(a, c, w->account);
	arbpark_leave_line(a, c);
	arbpark_complete(a, c, o, why);
	arbpark_end_attempt(a, c);
	arbpark_state(a, c, ARB_RUNNING, o, note);
}

static void let_out(struct arb *a, struct arb_context *c, const char *note)
{
	arbpark_leave_line(a, c);
	ARB_EACH_WANT(w, c->attempt)
		arbledger_promise(w->account, c, w->need);
	if (c->call == ARB_CALL_READY)
		arbpark_complete(a, c, ARB_OK, NULL);
	arbpark_state(a, c, ARB_RUNNING, ARB_OK, note);
	if (arbcontext_parked(c))
		arbask_enter(a, c);
}

enum arb_outcome arbpump_ready(struct arb *a, struct arb_context *c, const struct arb_message *m)
{
	if (!c || c->state == ARB_RUNNING)
		return ARB_OK;
	if (m->deadline_ns && m->deadline_ns <= a->now_ns)
		return ARB_TIMEDOUT;
	arbpark_park(a, c, ARB_CALL_READY, m->deadline_ns);
	arbpark_state(a, c, ARB_BUFN, ARB_OK, "rolled back");
	return ARB_PENDING;
}

/* Success resets everybody's limit; of a task that has nothing pinned it is progress. */
enum arb_outcome arbpump_retry_end(struct arb *a, struct arb_context *c, bool ok)
{
	c->in_retry = false;
	c->lost_ns = 0;
	if (!ok)
		return ARB_OK;
	a->era++;
	if (c->state == ARB_RUNNING)
		arbpark_end_attempt(a, c);
	for (const struct arb_binding *b = c->bindings; b; b = b->cnext)
		for (const struct arb_account *k = b->task->accounts; k; k = k->next)
			if (k->pinned)
				return ARB_OK;
	arbnote_progress(a);
	return ARB_OK;
}

/* ---- progress -------------------------------------------------------------------------------- */

/* The same, after what better ones wait for there: an attempt that is let out before them would
 * only be rolled back for them. */
static int64_t room_after(const struct arb_pool *p, const struct arb_rank *rank)
{
	return arbpool_room(p) - arbline_above(&p->waiting, rank);
}

/* Does the attempt that was rolled back fit; last: after all that better ones wait for? */
static bool attempt_fits(const struct arb_context *c, bool last)
{
	ARB_EACH_WANT(w, c->attempt)
		if (w->weight > (last ? room_after(w->pool, &c->rank) : arbpool_room(w->pool)))
			return false;
	return true;
}

static struct arb_want *next_rolled(const struct arb_pool *p)
{
	int64_t room = arbpool_room(p);
	struct arb_want *w = NULL;

	for (;;) {
		w = arbline_best_fit(&p->rolled, room, w, false);
		if (!w || attempt_fits(w->context, true))
			return w;
		room = room_after(p, &w->rank); /* for all that come after it, at most */
	}
}

static void merged_pass(struct arb *a, struct arb_pool *p)
{
	struct arb_want *rolled, *waiter;

	while ((rolled = next_rolled(p)) != NULL) {
		waiter = next_waiter(a, p, true);
		if (waiter && arb_rank_cmp(&waiter->context->rank, &rolled->context->rank) < 0)
			grant(a, waiter->context, "fits now");
		else
			let_out(a, rolled->context, "others made progress, and its attempt fits");
	}
	arbnote_dirty(a, p);
}

static void run(struct arb *a)
{
	struct arb_pool *p;

	if (a->progress) {
		a->progress = false;
		for (p = a->pools; p; p = p->hh.next)
			if (p->n_rolled)
				merged_pass(a, p);
	}
	while ((p = a->dirty) != NULL) {
		a->dirty = p->dirty_next;
		p->dirty = false;
		pump(a, p);
		p->look = p->n_waiting > 1;
		a->look = a->look || p->look;
	}
}

/* ---- nobody can go on ------------------------------------------------------------------------ */
/*
 * One action per run.
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

static bool split_or_solo(struct arb *a)
{
	struct arb_context *c;

	if (!a->n_bufn || !all_stalled(a, ARB_KNOB_SPLIT_TICKS) ||
	    (a->silent < (uint64_t)a->knobs[ARB_KNOB_SPLIT_TICKS] &&
	     (a->n_stalled != a->n_live_tasks || !arbtask_all_certain(a))))
		return false;
	c = best_rolled(a);
	if (!c)
		return false;
	if (c->solo_epoch != a->epoch && attempt_fits(c, false)) {
		c->solo_epoch = a->epoch;
		let_out(a, c, "all are stalled, and its attempt fits: alone");
	} else {
		split(a, c, "all are stalled, and its attempt does not fit");
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
		roll_back(a, w->context, "its request and others can never be met together");
		return true;
	}
	return false;
}

static bool detect(struct arb *a)
{
	struct arb_context *c;

	a->look = false;
	a->totals.n_detects++;
	if (!a->n_parked)
		return false;
	if (a->n_blocked && all_stalled(a, ARB_KNOB_SUSPECT_TICKS)) {
		if (serve_past(a))
			return true;
		c = lowest_blocked(a);
		if (c) {
			roll_back(a, c, "all are stalled, and it is the lowest");
			return true;
		}
	}
	if (!a->n_blocked && split_or_solo(a))
		return true;
	return a->n_blocked > 1 && early(a);
}

void arbpump_settle(struct arb *a)
{
	do
		run(a);
	while (a->progress || a->dirty || (a->look && detect(a)));
	a->look = false;
}
