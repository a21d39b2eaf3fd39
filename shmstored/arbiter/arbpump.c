/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbpump.c: who gets bytes now.
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

bool arbpump_past(struct arb *a)
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

/* ---- progress -------------------------------------------------------------------------------- */

/* The same, after what better ones wait for there: an attempt that is let out before them would
 * only be rolled back for them. */
static int64_t room_after(const struct arb_pool *p, const struct arb_rank *rank)
{
	return arbpool_room(p) - arbline_above(&p->waiting, rank);
}

static bool fits_after_better(const struct arb_context *c)
{
	ARB_EACH_WANT(w, c->attempt)
		if (w->weight > room_after(w->pool, &c->rank))
			return false;
	return true;
}

static struct arb_want *next_rolled(const struct arb_pool *p)
{
	int64_t room = arbpool_room(p);
	struct arb_want *w = NULL;

	for (;;) {
		w = arbline_best_fit(&p->rolled, room, w, false);
		if (!w || fits_after_better(w->context))
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
			arbroll_out(a, rolled->context,
				    "others made progress, and its attempt fits");
	}
	arbnote_dirty(a, p);
}

void arbpump_run(struct arb *a)
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
