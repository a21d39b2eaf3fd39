/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbcheck.c: everything that must be true between two steps, looked at anew from
 * the bottom. Slow; for tests.
 *
 *   books      a pool's and an account's sums are those of their reservations; used is within the
 *              capacity, unless that has shrunk
 *   spills     what may go is a victim or a job, nothing else is; who waits for
 *              spills is not forgotten by them
 *   lines      in the order of ranks, as many as are counted
 *   contexts   parked is one withheld reply; nobody waits who fits, but for who closed the
 *              pool; no deadline has passed
 *   tasks      who is stalled, counted anew
 *   detection  never are all stalled, for certain or by silence, and somebody parked
 *
 * Who was chosen for RETRY, SPLIT or a grant cannot be seen at rest:
 * scenarios and a model say that.
 */
#include "arbcheck.h"

#include "arbcore.h"

/* ---- books ----------------------------------------------------------------------------------- */

struct sums {
	int64_t used, spill_used, reclaimable, wanted, pinned;
	uint64_t spilled;
	uint32_t n;
};

static struct sums add_up(const struct arb *a, const struct arb_pool *p)
{
	struct sums s = {0};

	for (const struct arb_reservation *r = a->reservations; r; r = r->hh.next) {
		if (r->pool != p || !r->owner)
			continue;
		s.n++;
		s.used += (int64_t)r->bytes;
		s.spilled += r->spilled;
		s.wanted += r->job ? (int64_t)r->wanted : 0;
		s.spill_used += r->spill ? (int64_t)r->bytes : 0;
		s.pinned += r->holder ? (int64_t)r->bytes : 0;
		s.reclaimable += !r->holder && !r->spill ? (int64_t)r->bytes : 0;
	}
	return s;
}

static const char *check_sums(const struct arb *a, const struct arb_pool *p)
{
	const struct sums s = add_up(a, p);

	if (p->used < 0 || p->reclaimable < 0 || p->reclaimable > p->used)
		return "a pool's sums are out of their range";
	if (p->used > p->capacity && !p->over)
		return "more is booked than the pool has";
	if (s.used != p->used)
		return "a pool's used is not the sum of its reservations";
	if (s.spill_used != p->spill_used)
		return "a pool's spill bytes are not the sum of the spill path's reservations";
	if (s.reclaimable != p->reclaimable)
		return "a pool's reclaimable bytes are not those that nobody pins";
	if (s.pinned != arbpool_pinned(p))
		return "a pool's pinned bytes are not those that somebody pins";
	if (s.wanted != p->wanted)
		return "a pool's wanted bytes are not the sum of its reservations";
	if (s.spilled != p->spilled)
		return "a pool's spilled bytes are not the sum of its reservations";
	return s.n == p->n_reservations ? NULL
					: "a pool's reservations are not as many as were counted";
}

static const char *check_account(const struct arb_account *account)
{
	const struct arb_task *t = account->task;
	const struct arb_reservation *r;
	const struct arb_pin *pin;
	uint64_t owned = 0, pinned = 0, lacks;

	DL_FOREACH2(account->owned, r, own_next)
	{
		owned += r->bytes;
		pinned += r->holder == account ? r->bytes : 0;
	}
	for (pin = t ? t->pins : NULL; pin; pin = pin->tnext)
		if (pin->res->holder == account && pin->res->owner != account)
			pinned += pin->res->bytes;
	if (owned != account->stats.current)
		return "what is booked to a task is not the sum of what it owns";
	if (pinned != account->pinned)
		return "a task's pinned bytes are not the sum of what it pins";
	lacks = account->promise > pinned ? account->promise - pinned : 0;
	if (account->promised != lacks || (account->promise && !account->promised_to))
		return "a promise is not what is lacking of it";
	return NULL;
}

static const char *check_accounts(const struct arb_pool *p)
{
	int64_t promised = 0, stuck = (int64_t)p->nobody.pinned;
	const char *wrong = check_account(&p->nobody);
	const struct arb_account *account;

	DL_FOREACH2(p->accounts, account, pnext)
	{
		wrong = wrong ? wrong : check_account(account);
		promised += (int64_t)account->promised;
		stuck += account->task->stalled ? (int64_t)account->pinned : 0;
	}
	if (!wrong && promised != p->promised)
		return "a pool's promises are not the sum of its accounts'";
	if (!wrong && stuck != p->stuck_bytes)
		return "a pool's stuck bytes are not those of stalled tasks and of nobody";
	return wrong;
}

static const char *check_reservation(const struct arb_reservation *r)
{
	const struct arb_context *c;
	const bool may_go = r->owner && !r->holder && !r->spill && r->bytes;
	const struct arb_account *holder = !r->owner || r->spill         ? NULL
					   : r->owner_pins || r->refused ? r->owner
					   : r->pins                     ? r->pins->account
									 : NULL;

	DL_FOREACH2(r->askers, c, anext)
	if (c->call == ARB_CALL_PIN && c->ask->want->bytes != r->spilled)
		return "somebody waits for another part of a reservation than what is away";
	if (r->holder != holder)
		return "a reservation is not in the books of who pins it";
	if (r->job && arbtree_in(&r->node))
		return "a reservation is being spilled and still a victim";
	return (r->job || arbtree_in(&r->node)) == may_go
		       ? NULL
		       : "what may be spilled and what is a victim differ";
}

/* ---- lines ----------------------------------------------------------------------------------- */

static const char *check_line(const struct arbtree *line, uint32_t n, enum arb_line which)
{
	const struct arb_want *w = arbline_best(line), *next;

	for (; w; w = next, n--) {
		next = arbline_next(w);
		if (w->context->line != which || !n)
			return "somebody is in a line in which he is not";
		if (next && arb_rank_cmp(&w->context->rank, &next->context->rank) >= 0)
			return "a line is not in the order of ranks";
	}
	return n ? "a line is not as long as was counted" : NULL;
}

static const char *check_lines(const struct arb *a, const struct arb_pool *p)
{
	const char *wrong = check_line(&p->waiting, p->n_waiting, ARB_LINE_WAITING);
	bool alone = true, alloc = false;
	int64_t bytes = 0;

	wrong = wrong ? wrong : check_line(&p->rolled, p->n_rolled, ARB_LINE_ROLLED);
	for (const struct arb_want *w = wrong ? NULL : arbline_best(&p->waiting); w;
	     w = arbline_next(w)) {
		bytes += w->alloc ? (int64_t)w->bytes : 0;
		alone = alone && w->context->ask->n == 1;
		alloc = alloc || w->alloc;
	}
	if (wrong)
		return wrong;
	if (p->closer_known && p->n_waiting &&
	    p->closer != arbline_closer(&p->waiting, a->knobs[ARB_KNOB_MAX_BYPASS]))
		return "a pool is closed by somebody else than who was passed too often";
	if (bytes != p->alloc)
		return "what a pool's ALLOC contexts wait for is not the sum of it";
	if (alloc && alone && !p->jobs)
		return "somebody waits for spills, and there are none";
	return NULL;
}

/* ---- contexts -------------------------------------------------------------------------------- */

static bool is_alloc(const struct arb_context *c)
{
	return c->state == ARB_ALLOC || c->state == ARB_ALLOC_FREE;
}

/* Said when it was asked for, when the pool shrank, or when more of it was spilled:
 * also to who is rolled back. */
static const char *check_size(const struct arb_context *c)
{
	for (uint32_t i = 0; arbcontext_parked(c) && i < c->ask->n; i++)
		if ((int64_t)c->ask->want[i].bytes > arbpool_most(c->ask->want[i].pool))
			return "somebody waits for more than the pool will ever have";
	return NULL;
}

static const char *check_wait(const struct arb *a, const struct arb_context *c)
{
	const enum arb_fit fit = arbfit_ask(c->ask);
	const bool closed = arbfit_ask_closed(a, c, c->ask);

	if (is_alloc(c) && (closed || fit == ARB_FIT_NOT))
		return "somebody waits for spills that cannot help";
	if (is_alloc(c) && fit == ARB_FIT_FREE)
		return "somebody waits for spills, and it fits without them";
	if (c->state == ARB_BLOCKED && !closed && fit != ARB_FIT_NOT)
		return "somebody is BLOCKED who fits";
	return NULL;
}

static const char *check_context(const struct arb *a, const struct arb_context *c)
{
	const bool waits = is_alloc(c) || c->state == ARB_BLOCKED;

	if (c->state == ARB_BUFN_THROW || c->state == ARB_SPLIT_THROW ||
	    c->state == ARB_REMOVE_THROW)
		return "a context rests in a state that exists within a step only";
	if ((waits || c->state == ARB_BUFN) != arbcontext_parked(c))
		return arbcontext_parked(c) ? "a reply is withheld and its context is not parked"
					    : "a context is parked and no reply is withheld";
	if (waits != (c->line == ARB_LINE_WAITING))
		return "who waits is in no line, or who is in a line does not wait";
	if ((c->state == ARB_BUFN || c->state == ARB_BUFN_WAIT) != (c->line == ARB_LINE_ROLLED))
		return "who rolled back is in no line, or who is in its line did not roll back";
	if (c->deadline.at && (!arbcontext_parked(c) || c->deadline.at <= a->now_ns))
		return "a deadline has passed, or is of a call that is over";
	if (check_size(c))
		return check_size(c);
	return waits ? check_wait(a, c) : NULL;
}

/* ---- tasks and detection --------------------------------------------------------------------- */

struct seen {
	uint32_t n_live, n_stalled, n_certain, n_maybe, n_parked, n_blocked, n_bufn;
	bool alloc, jobs;
};

static bool is_stalled(const struct arb_context *c)
{
	return c->state == ARB_BLOCKED || c->state == ARB_BUFN || c->wait;
}

static const char *check_task(const struct arb_task *t, struct seen *s)
{
	const struct arb_context *c;
	uint32_t n = 0, n_stalled = 0;

	for (const struct arb_binding *b = t->bindings; b; b = b->tnext) {
		c = b->context;
		n++;
		n_stalled += is_stalled(c);
	}
	if (n != t->n_own + t->n_help)
		return "a task's contexts are not as many as were counted";
	if (t->stalled != (n && n_stalled == n))
		return "a task is called stalled and is not, or the other way round";
	if ((t->certain && !t->stalled) || (t->stalled && !t->maybe))
		return "a task is certainly stalled and not stalled, or stalled and not even "
		       "possibly";
	s->n_live += n != 0;
	s->n_stalled += t->stalled;
	s->n_certain += t->certain;
	s->n_maybe += t->maybe;
	return NULL;
}

static void count_context(const struct arb_context *c, struct seen *s)
{
	s->n_parked += arbcontext_parked(c);
	s->n_blocked += c->state == ARB_BLOCKED;
	s->n_bufn += c->state == ARB_BUFN;
	s->alloc = s->alloc || is_alloc(c);
}

static const char *check_counts(const struct arb *a, const struct seen *s)
{
	if (s->n_parked != a->n_parked)
		return "the contexts with a withheld reply are not as many as were counted";
	if (s->n_blocked != a->n_blocked || s->n_bufn != a->n_bufn)
		return "those who are BLOCKED or BUFN are not as many as were counted";
	if (s->n_live != a->n_live_tasks || s->n_stalled != a->n_stalled ||
	    s->n_certain != a->n_certain || s->n_maybe != a->n_maybe)
		return "the stalled tasks are not as many as were counted";
	if (s->alloc && !s->jobs)
		return "somebody waits for spills, and there are none anywhere";
	return NULL;
}

static const char *check_rest(const struct arb *a, const struct seen *s)
{
	const bool all = s->n_live && s->n_stalled == s->n_live,
		   maybe = s->n_live && s->n_maybe == s->n_live;

	if (s->n_blocked &&
	    (all || (maybe && a->silent >= (uint64_t)a->knobs[ARB_KNOB_SUSPECT_TICKS])))
		return "all are stalled, and nobody was rolled back";
	if (s->n_bufn && !s->n_blocked &&
	    ((all && arbtask_all_certain(a)) ||
	     (maybe && a->silent >= (uint64_t)a->knobs[ARB_KNOB_SPLIT_TICKS])))
		return "all are stalled, and nobody was let out or told to split";
	if (a->dirty || a->progress)
		return "a step has left something undone";
	return NULL;
}

const char *arb_check(const struct arb *a)
{
	const char *wrong = NULL;
	struct seen s = {0};

	for (const struct arb_pool *p = a->pools; p && !wrong; p = p->hh.next) {
		s.jobs = s.jobs || p->jobs;
		wrong = check_sums(a, p);
		wrong = wrong ? wrong : check_accounts(p);
		wrong = wrong ? wrong : check_lines(a, p);
	}
	for (const struct arb_reservation *r = a->reservations; r && !wrong; r = r->hh.next)
		wrong = check_reservation(r);
	for (const struct arb_context *c = a->contexts; c && !wrong; c = c->hh.next) {
		wrong = check_context(a, c);
		count_context(c, &s);
	}
	for (const struct arb_task *t = a->tasks; t && !wrong; t = t->hh.next)
		wrong = check_task(t, &s);
	wrong = wrong ? wrong : check_counts(a, &s);
	return wrong ? wrong : check_rest(a, &s);
}
