/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbroll.c: attempts: rolled back, let out again, split, ended.
 *
 * A context that is told RETRY remembers the need of its attempt: what it held and the request that
 * failed. It waits in the lines "rolled" of these pools, and is let out with a promise: what it
 * still lacks of its need is not given to others who are let out. The promise ends when it is kept,
 * when the attempt ends, or when it is rolled back again.
 *
 * A context's outcomes are counted until anybody makes progress: one that busy neighbours roll back
 * goes on, one that turns in circles ends with NOMEM.
 */
#include "arbcore.h"

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

void arbroll_back(struct arb *a, struct arb_context *c, const char *note)
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

void arbroll_split(struct arb *a, struct arb_context *c, const char *note)
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

void arbroll_out(struct arb *a, struct arb_context *c, const char *note)
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

enum arb_outcome arbroll_ready(struct arb *a, struct arb_context *c, const struct arb_message *m)
{
	if (!c || c->state == ARB_RUNNING)
		return ARB_OK;
	if (m->deadline_ns && m->deadline_ns <= a->now_ns)
		return ARB_TIMEDOUT;
	arbpark_park(a, c, ARB_CALL_READY, m->deadline_ns);
	arbpark_state(a, c, ARB_BUFN, ARB_OK, "rolled back");
	return ARB_PENDING;
}

static bool idle(const struct arb_context *c)
{
	const struct arb_account *account;

	for (const struct arb_binding *b = c->bindings; b; b = b->cnext)
		LL_FOREACH(b->task->accounts, account)
	if (account->pinned)
		return false;
	return true;
}

/* Success resets everybody's limit; of a task that has nothing pinned it is progress. */
enum arb_outcome arbroll_retry_end(struct arb *a, struct arb_context *c, bool ok)
{
	c->in_retry = false;
	c->lost_ns = 0;
	if (!ok)
		return ARB_OK;
	a->era++;
	if (c->state == ARB_RUNNING)
		arbpark_end_attempt(a, c);
	if (idle(c))
		arbnote_progress(a);
	return ARB_OK;
}
