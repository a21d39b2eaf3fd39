/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbbind.c: contexts, the tasks that they serve, and their rank; the end of a task.
 *
 * A context exists while it is bound to anything. Its bindings are in the order of its tasks'
 * ranks: the first is whose priority a helper has, and to whom its bytes are booked. Leaving a task
 * is progress: others may go on.
 */
#include "arbcore.h"

static bool task_better(const struct arb_task *x, const struct arb_task *y)
{
	return x->priority != y->priority ? x->priority > y->priority : x->seq < y->seq;
}

/* Rank is a key of the lines: c is in none while it changes. */
static void rerank(struct arb *a, struct arb_context *c)
{
	enum arb_line line = c->line;
	bool alloc =
		line == ARB_LINE_WAITING && (c->state == ARB_ALLOC || c->state == ARB_ALLOC_FREE);
	const struct arb_task *t = c->bindings->task;

	if (c->rank.task_seq == t->seq && c->rank.priority == t->priority)
		return;
	if (line)
		arbpark_leave_line(a, c);
	c->rank = (struct arb_rank){.priority = t->priority,
				    .task_seq = t->seq,
				    .context_seq = c->seq,
				    .service = c->kind == ARB_SERVICE};
	if (line)
		arbpark_line_up(a, c, line, alloc);
}

static struct arb_binding *find_binding(const struct arb_context *c, const struct arb_task *t)
{
	struct arb_binding *b = c->bindings;

	while (b && b->task != t)
		b = b->cnext;
	return b;
}

/* c comes to t (by 1) or leaves it (-1): t's counters. */
static void count_in(struct arb *a, struct arb_task *t, const struct arb_context *c, uint32_t by)
{
	bool own = c->kind == ARB_DEDICATED, empty = t->n_own + t->n_help == 0;

	*(own ? &t->n_own : &t->n_help) += by;
	*(own ? &t->n_own_stalled : &t->n_help_stalled) += c->stalled ? by : 0;
	*(own ? &t->n_own_maybe : &t->n_help_maybe) += c->maybe ? by : 0;
	t->n_waiting += c->line ? by : 0;
	arbtask_mark(t, c, by);
	a->n_live_tasks += (t->n_own + t->n_help != 0) - (uint32_t)!empty;
	arbtask_eval(a, t);
	if (t->n_waiting)
		arbstuck_refresh(a, t);
	a->look = true;
}

static void attach(struct arb *a, struct arb_context *c, struct arb_task *t, struct arb_binding *b)
{
	struct arb_binding **at = &c->bindings;

	b->context = c;
	b->task = t;
	while (*at && task_better((*at)->task, t))
		at = &(*at)->cnext;
	b->cnext = *at;
	*at = b;
	c->n_tasks++;
	DL_APPEND2(t->bindings, b, tprev, tnext);
	count_in(a, t, c, 1);
}

static void detach(struct arb *a, struct arb_context *c, struct arb_task *t)
{
	struct arb_binding *b = find_binding(c, t);
	struct arb_account *account;

	LL_DELETE2(c->bindings, b, cnext);
	DL_DELETE2(t->bindings, b, tprev, tnext);
	arbslab_put(&a->slabs.bindings, b);
	c->n_tasks--;
	LL_FOREACH(t->accounts, account)
	arbledger_promise(account, c, 0);
	count_in(a, t, c, (uint32_t)-1);
}

void arbbind_free(struct arb *a, struct arb_context *c)
{
	if (c->wait == ARB_WAIT_TASK)
		DL_DELETE2(a->task_waiters, c, wprev, wnext);
	for (int i = 0; i < 2; i++)
		if (c->asks[i].want != c->asks[i].one)
			free(c->asks[i].want);
	arb_leave(&c->item, ARB_CONTEXTS);
	HASH_DEL(a->contexts, c);
	arbslab_put(&a->slabs.contexts, c);
}

void arbbind_forget(struct arb *a, struct arb_context *c)
{
	const enum arb_outcome o = arbcontext_parked(c) ? ARB_REMOVED : ARB_OK;

	if (o == ARB_REMOVED) {
		arbpark_state(a, c, ARB_REMOVE_THROW, ARB_OK, NULL);
		arbpark_leave_line(a, c);
		arbpark_complete(a, c, o, NULL);
	}
	arbpark_end_attempt(a, c);
	arbpark_state(a, c, ARB_UNKNOWN, o, NULL);
	arbclock_set(a, c, 0);
	while (c->bindings)
		detach(a, c, c->bindings->task);
	arbbind_free(a, c);
	arbnote_progress(a);
}

/* A request that was to be booked to t is booked to the best task that is left. */
static void rebook(struct arb_context *c, const struct arb_task *t, struct arb_ask *ask)
{
	ARB_EACH_WANT(w, ask)
		if (w->account && w->account->task == t)
			w->account = arbledger_find(c->bindings->task, w->pool);
}

/* It serves t no more. */
static void drop(struct arb *a, struct arb_context *c, struct arb_task *t)
{
	if (c->n_tasks == 1) {
		arbbind_forget(a, c);
		return;
	}
	detach(a, c, t);
	rebook(c, t, c->ask);
	rebook(c, t, c->attempt);
	rerank(a, c);
	for (struct arb_binding *b = c->bindings; b; b = b->cnext)
		arbstuck_refresh(a, b->task);
	arbnote_progress(a);
}

/* ---- messages -------------------------------------------------------------------------------- */

static int make_context(struct arb *a, uint64_t id, enum arb_kind kind, struct arb_context **ret)
{
	struct arb_context *c;

	if (arbpark_room(a, 2) < 0)
		return -ENOMEM;
	c = arbslab_get(&a->slabs.contexts);
	if (!c)
		return -ENOMEM;
	c->id = id;
	HASH_ADD(hh, a->contexts, id, sizeof(c->id), c);
	if (!c->hh.tbl) {
		arbslab_put(&a->slabs.contexts, c);
		return -ENOMEM;
	}
	arbitem_enter(a, &c->item, ARB_CONTEXTS, id);
	c->seq = ++a->seq;
	c->kind = kind;
	c->state = ARB_UNKNOWN;
	c->rank.context_seq = c->seq;
	c->rank.service = kind == ARB_SERVICE;
	c->solo_epoch = UINT64_MAX;
	c->ask = &c->asks[0];
	c->attempt = &c->asks[1];
	for (int i = 0; i < 2; i++)
		c->asks[i].want = c->asks[i].one = &c->ones[i];
	*ret = c;
	return 0;
}

static bool bind_valid(const struct arb_message *m, const struct arb_context *c)
{
	if (!m->context || !m->list || !m->n_list || m->n_list > ARB_LIST_MAX ||
	    m->kind < ARB_DEDICATED || m->kind > ARB_SERVICE)
		return false;
	if (m->kind == ARB_DEDICATED && m->n_list != 1)
		return false;
	for (uint32_t i = 0; i < m->n_list; i++)
		if (!m->list[i])
			return false;
	return !c || (c->kind == (enum arb_kind)m->kind && !arbcontext_parked(c));
}

/* t needs an account in each pool of c's rolled-back attempt. */
static int make_accounts(struct arb *a, const struct arb_context *c, struct arb_task *t)
{
	for (uint32_t i = 0; c && i < c->attempt->n; i++)
		if (!arbledger_account(a, t, c->attempt->want[i].pool))
			return -ENOMEM;
	return 0;
}

/* A bind ran out of memory: removes the tasks that it made, younger than seq. */
static void forget_prepared(struct arb *a, const struct arb_message *m, struct arb_binding *list,
			    uint64_t seq)
{
	struct arb_binding *b;
	struct arb_task *t;

	while (list) {
		b = list;
		LL_DELETE2(list, b, cnext);
		arbslab_put(&a->slabs.bindings, b);
	}
	for (uint32_t i = 0; i < m->n_list; i++) {
		t = arbtask_find(a, m->list[i]);
		if (!t || t->seq <= seq)
			continue;
		HASH_DEL(a->tasks, t);
		arbtask_free(a, t);
		a->next_priority++;
	}
}

/* Memory for all that a bind may make, taken before anything changes. */
static int prepare(struct arb *a, const struct arb_message *m, const struct arb_context *c,
		   struct arb_binding **ret)
{
	struct arb_binding *list = NULL, *b;
	const uint64_t seq = a->seq;
	struct arb_task *t;

	for (uint32_t i = 0; i < m->n_list; i++) {
		b = arbslab_get(&a->slabs.bindings);
		t = arbtask_find(a, m->list[i]);
		if (!b || (!t && arbtask_make(a, m->list[i], ARB_PRIORITY_DEFAULT, NULL, &t) < 0) ||
		    make_accounts(a, c, t) < 0) {
			arbslab_put(&a->slabs.bindings, b);
			break;
		}
		b->task = t;
		LL_APPEND2(list, b, cnext);
		if (i + 1 == m->n_list) {
			*ret = list;
			return 0;
		}
	}
	forget_prepared(a, m, list, seq);
	return -ENOMEM;
}

int arbbind_bind(struct arb *a, const struct arb_message *m, enum arb_outcome *ret)
{
	struct arb_context *c = arbcontext_find(a, m->context);
	struct arb_binding *list = NULL, *b;
	struct arb_task *t;
	const uint64_t seq = a->seq;
	bool fresh = !c;

	*ret = a->down ? ARB_DOWN : ARB_INVALID;
	if (a->down || !bind_valid(m, c))
		return 0;
	if (prepare(a, m, c, &list) < 0)
		return -ENOMEM;
	if (fresh && make_context(a, m->context, (enum arb_kind)m->kind, &c) < 0) {
		forget_prepared(a, m, list, seq);
		return -ENOMEM;
	}
	if (!fresh && c->kind == ARB_DEDICATED && c->bindings->task != list->task) { /* it moves */
		arbpark_end_attempt(a, c);
		if (c->state == ARB_BUFN_WAIT) /* what it was to try again was the other task's */
			arbpark_state(a, c, ARB_RUNNING, ARB_OK, "serves another task");
		detach(a, c, c->bindings->task);
		arbnote_progress(a);
	}
	while (list) {
		b = list;
		t = b->task;
		LL_DELETE2(list, b, cnext);
		if (find_binding(c, t))
			arbslab_put(&a->slabs.bindings, b);
		else
			attach(a, c, t, b);
	}
	if (fresh)
		arbpark_state(a, c, ARB_RUNNING, ARB_OK, NULL);
	rerank(a, c);
	*ret = ARB_OK;
	return 0;
}

enum arb_outcome arbbind_unbind(struct arb *a, const struct arb_message *m)
{
	struct arb_context *c = arbcontext_find(a, m->context);
	struct arb_task *t;

	if (!m->context || m->n_list > ARB_LIST_MAX || (m->n_list && !m->list))
		return ARB_INVALID;
	if (c && (m->flags & ARB_ALL)) {
		arbbind_forget(a, c);
		return ARB_OK;
	}
	for (uint32_t i = 0; i < m->n_list && c; i++) {
		t = arbtask_find(a, m->list[i]);
		if (t && find_binding(c, t)) {
			drop(a, c, t);
			c = arbcontext_find(a, m->context);
		}
	}
	return ARB_OK;
}

void arbbind_destroy(struct arb *a, struct arb_reservation *r)
{
	while (r->askers)
		arbpark_cancel(a, r->askers, ARB_CANCELED);
	arbledger_destroy(a, r);
}

/* Frees the account's reservations, or leaves them to nobody. */
static void give_up(struct arb *a, struct arb_account *account, unsigned flags)
{
	struct arb_reservation *r, *next;

	DL_FOREACH_SAFE2(account->owned, r, next, own_next)
	{
		if ((flags & ARB_RELEASE) && (!r->sealed || (flags & ARB_ALL))) {
			arbbind_destroy(a, r);
			continue;
		}
		if (flags & ARB_RELEASE)
			arbledger_owner_unpins(r); /* the dead pin nothing */
		arbledger_own(a, r, &account->pool->nobody);
	}
	arbledger_promise(account, account->promised_to, 0);
}

enum arb_outcome arbbind_end_task(struct arb *a, const struct arb_message *m)
{
	struct arb_task *t = arbtask_find(a, m->task);
	struct arb_account *account;

	if (!t)
		return ARB_INVALID;
	while (t->bindings)
		drop(a, t->bindings->context, t);
	while (t->pins)
		arbledger_drop_pin(a, t->pins);
	LL_FOREACH(t->accounts, account)
	give_up(a, account, m->flags);
	arbtask_remember(a, t);
	arbnote_progress(a);
	return ARB_OK;
}
