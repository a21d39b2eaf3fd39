/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbinject.c: outcomes on demand, for tests of clients. They change no state; RETRY and SPLIT are
 * counted, but not against the limit.
 *
 * Looked at when a request begins, in the order of enum arb_inject: the context's own, then those
 * of its tasks. A match first uses up skip, then count.
 */
#include "arbcore.h"

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
	struct arb_context *c = arbcontext_find(a, m->context);
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

	arbnote_transition(a, c, c->state, c->state, o, "injected");
	if (!account || (o != ARB_RETRY && o != ARB_SPLIT))
		return;
	account->stats.n_retries += o == ARB_RETRY;
	account->stats.n_splits += o == ARB_SPLIT;
	account->pool->n_retries += o == ARB_RETRY;
	account->pool->n_splits += o == ARB_SPLIT;
	a->totals.n_retries += o == ARB_RETRY;
	a->totals.n_splits += o == ARB_SPLIT;
	arbpark_lose(a, c, account);
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
