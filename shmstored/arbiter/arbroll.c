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

static void end_promise(struct arb_context *c)
{
	ARB_EACH_WANT(w, c->attempt)
		if (w->account)
			arbledger_promise(w->account, c, 0);
}

void arbroll_end(struct arb *a, struct arb_context *c)
{
	if (c->line == ARB_LINE_ROLLED)
		arbpark_leave_line(a, c);
	end_promise(c);
	c->attempt->n = 0;
}

/* The time since the last start, and before that since the last wait began, was for nothing. */
void arbroll_lose(struct arb *a, struct arb_context *c, struct arb_account *account)
{
	if (!c->in_retry)
		return;
	if (!arbcontext_parked(c))
		c->lost_ns += a->now_ns - c->run_ns;
	account->stats.lost_ns += c->lost_ns;
	account->stats.blocked_or_lost_ns += c->lost_ns;
	c->lost_ns = 0;
	c->run_ns = a->now_ns;
}

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
	const char *why = o == ARB_NOMEM ? arbwhy_say(a, ask) : NULL;

	arbpark_state(a, c, ARB_BUFN_THROW, ARB_OK, note);
	arbpark_leave_line(a, c);
	account->stats.n_retries++;
	ask->want[0].pool->n_retries++;
	a->totals.n_retries++;
	a->totals.n_nomem += o == ARB_NOMEM;
	arbroll_lose(a, c, account);
	end_promise(c);
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
	const char *why = arbwhy_say(a, c->attempt);

	arbpark_state(a, c, ARB_SPLIT_THROW, ARB_OK, note);
	w->account->stats.n_splits++;
	w->pool->n_splits++;
	a->totals.n_splits++;
	a->totals.n_nomem += o == ARB_NOMEM;
	arbroll_lose(a, c, w->account);
	arbpark_leave_line(a, c);
	arbpark_complete(a, c, o, why);
	arbroll_end(a, c);
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

enum arb_outcome arbroll_retry_begin(struct arb *a, struct arb_context *c)
{
	c->in_retry = true;
	c->lost_ns = 0;
	c->run_ns = a->now_ns;
	return ARB_OK;
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
		arbroll_end(a, c);
	if (idle(c))
		arbpump_progress(a);
	return ARB_OK;
}

/*
 * Outcomes on demand, for tests of clients. They change no state; RETRY and SPLIT are
 * counted, but not against the limit.
 *
 * Looked at when a request begins, in the order of enum arb_inject: the context's own, then those
 * of its tasks. A match first uses up skip, then count.
 */
static const struct {
	int kind;
	enum arb_outcome outcome;
} order[] = {
	{ARB_INJECT_RETRY, ARB_RETRY},       {ARB_INJECT_ERROR, ARB_ERROR},
	{ARB_INJECT_SPLIT, ARB_SPLIT},       {ARB_INJECT_TOOBIG, ARB_TOOBIG},
	{ARB_INJECT_TIMEDOUT, ARB_TIMEDOUT},
};

enum arb_outcome arbinject_set(struct arb *a, const struct arb_message *m)
{
	struct arb_context *c = arbbind_find(a, m->context);
	struct arb_task *t = arbtask_find(a, m->task);
	struct arb_injection i = {.count = (uint64_t)m->value, .skip = m->extra, .pool = m->pool};

	if (m->kind < ARB_INJECT_RETRY || m->kind > ARB_INJECT_TIMEDOUT || m->value < 0)
		return ARB_INVALID;
	if (m->context ? !c : !t)
		return ARB_INVALID;
	(m->context ? c->inject : t->inject)[m->kind] = i;
	a->n_injections++;
	return ARB_OK;
}

static bool hit(struct arb_injection *i, const struct arb_pool *p)
{
	if (!i->count || (i->pool && i->pool != p->id))
		return false;
	if (i->skip) {
		i->skip--;
		return false;
	}
	i->count--;
	return true;
}

static void count(struct arb *a, struct arb_context *c, const struct arb_pool *p,
		  enum arb_outcome o)
{
	struct arb_account *account = arbledger_account(a, c->bindings->task, p->nobody.pool);

	arblog_note(a, c, c->state, c->state, o, "injected");
	if (!account || (o != ARB_RETRY && o != ARB_SPLIT))
		return;
	account->stats.n_retries += o == ARB_RETRY;
	account->stats.n_splits += o == ARB_SPLIT;
	account->pool->n_retries += o == ARB_RETRY;
	account->pool->n_splits += o == ARB_SPLIT;
	a->totals.n_retries += o == ARB_RETRY;
	a->totals.n_splits += o == ARB_SPLIT;
	arbroll_lose(a, c, account);
}

enum arb_outcome arbinject_hit(struct arb *a, struct arb_context *c, const struct arb_pool *p)
{
	if (!a->n_injections)
		return ARB_OK;
	for (size_t k = 0; k < sizeof(order) / sizeof(order[0]); k++) {
		bool is = hit(&c->inject[order[k].kind], p);

		for (struct arb_binding *b = c->bindings; b && !is; b = b->cnext)
			is = hit(&b->task->inject[order[k].kind], p);
		if (is) {
			count(a, c, p, order[k].outcome);
			return order[k].outcome;
		}
	}
	return ARB_OK;
}
