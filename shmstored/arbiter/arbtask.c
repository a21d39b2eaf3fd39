/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbtask.c: tasks, and who of them is stalled.
 *
 * A task has one verdict of three degrees, made of counters of its contexts, and the arbiter counts
 * the tasks of each degree: "all tasks are stalled" is a comparison of two numbers.
 *
 *   stalled   all its contexts are parked or wait-marked
 *   certain   and no mark may go away by itself: a mark for its own helpers, who are all parked.
 *             (Marks for another task are looked at when it matters.)
 *   maybe     all its helpers and any dedicated one are, or are asleep by the word of the
 *             kernel: counts after silence only
 *
 * A task without contexts is not counted: nothing will come of it. The last thousand
 * tasks that ended are remembered.
 */
#include "arbcore.h"

int arbtask_make(struct arb *a, uint64_t id, int64_t priority, const char *name,
		 struct arb_task **ret)
{
	struct arb_task *t = arbslab_get(&a->slabs.tasks);

	if (!t)
		return -ENOMEM;
	t->id = id;
	HASH_ADD(hh, a->tasks, id, sizeof(t->id), t);
	if (!t->hh.tbl) {
		arbslab_put(&a->slabs.tasks, t);
		return -ENOMEM;
	}
	arbitem_enter(a, &t->item, ARB_TASKS, id);
	t->seq = ++a->seq;
	t->priority = priority == ARB_PRIORITY_DEFAULT ? --a->next_priority : priority;
	t->begun_ns = a->now_ns;
	if (name)
		(void)strncpy(t->name, name, ARB_NAME_MAX);
	*ret = t;
	return 0;
}

int arbtask_begin(struct arb *a, const struct arb_message *m, enum arb_outcome *ret)
{
	struct arb_task *t = NULL, *from = NULL;
	int64_t priority = m->value;

	*ret = ARB_INVALID;
	if (!m->task || arbtask_find(a, m->task))
		return 0;
	if (m->other) {
		from = arbtask_find(a, m->other);
		if (!from)
			HASH_FIND(hh, a->ended, &m->other, sizeof(m->other), from);
		if (!from)
			return 0;
		priority = from->priority;
	}
	*ret = a->down ? ARB_DOWN : ARB_OK;
	return a->down ? 0 : arbtask_make(a, m->task, priority, m->name, &t);
}

void arbtask_free(struct arb *a, struct arb_task *t)
{
	struct arb_account *account, *next;

	arb_leave(&t->item, ARB_TASKS);
	LL_FOREACH_SAFE(t->accounts, account, next)
	{
		DL_DELETE2(account->pool->accounts, account, pprev, pnext);
		arbslab_put(&a->slabs.accounts, account);
	}
	arbslab_put(&a->slabs.tasks, t);
}

void arbtask_remember(struct arb *a, struct arb_task *t)
{
	struct arb_task *old;

	arb_leave(&t->item, ARB_TASKS);
	HASH_DEL(a->tasks, t);
	HASH_FIND(hh, a->ended, &t->id, sizeof(t->id), old);
	if (old) {
		HASH_DEL(a->ended, old);
		arbtask_free(a, old);
		a->n_ended--;
	}
	HASH_ADD(hh, a->ended, id, sizeof(t->id), t);
	if (!t->hh.tbl) {
		arbtask_free(a, t);
		return;
	}
	if (++a->n_ended <= ARB_N_ENDED)
		return;
	old = a->ended; /* in the order in which they ended */
	HASH_DEL(a->ended, old);
	arbtask_free(a, old);
	a->n_ended--;
}

/* ---- who is stalled -------------------------------------------------------------------------- */

void arbtask_eval(struct arb *a, struct arb_task *t)
{
	uint32_t n = t->n_own + t->n_help;
	bool stalled = n && t->n_own_stalled == t->n_own && t->n_help_stalled == t->n_help;
	bool certain = stalled && !t->n_marks_external && (!t->n_marks_pool || t->n_help);
	bool maybe = n && (!t->n_own || t->n_own_maybe) && t->n_help_maybe == t->n_help;

	a->n_certain += (uint32_t)certain - (uint32_t)t->certain;
	a->n_maybe += (uint32_t)maybe - (uint32_t)t->maybe;
	t->certain = certain;
	t->maybe = maybe;
	if (stalled == t->stalled)
		return;
	a->n_stalled += (uint32_t)stalled - (uint32_t)t->stalled;
	t->stalled = stalled;
	/* its bytes will not come back, or may again */
	for (struct arb_account *k = t->accounts; k; k = k->next)
		k->pool->stuck_bytes += stalled ? (int64_t)k->pinned : -(int64_t)k->pinned;
	if (t->n_waiting) /* whoever of its contexts did it, others of them may wait */
		arbstuck_refresh(a, t);
	if (stalled)
		a->look = true;
}

void arbtask_mark(struct arb_task *t, const struct arb_context *c, uint32_t by)
{
	t->n_marks_pool += c->wait == ARB_WAIT_POOL ? by : 0;
	t->n_marks_task += c->wait == ARB_WAIT_TASK ? by : 0;
	t->n_marks_external += c->wait == ARB_WAIT_EXTERNAL ? by : 0;
}

static void add_counts(struct arb_task *t, const struct arb_context *c, uint32_t stalled,
		       uint32_t maybe)
{
	if (c->kind == ARB_DEDICATED) {
		t->n_own_stalled += stalled;
		t->n_own_maybe += maybe;
	} else {
		t->n_help_stalled += stalled;
		t->n_help_maybe += maybe;
	}
}

void arbtask_count(struct arb *a, struct arb_context *c)
{
	bool stalled = c->state == ARB_BLOCKED || c->state == ARB_BUFN || c->wait;
	bool maybe = stalled || (c->os_blocked && a->knobs[ARB_KNOB_OS_PROBE] &&
				 (c->state == ARB_RUNNING || c->state == ARB_BUFN_WAIT));
	struct arb_binding *b;

	if (stalled == c->stalled && maybe == c->maybe)
		return;
	for (b = c->bindings; b; b = b->cnext) {
		add_counts(b->task, c, (uint32_t)stalled - (uint32_t)c->stalled,
			   (uint32_t)maybe - (uint32_t)c->maybe);
		arbtask_eval(a, b->task);
	}
	c->stalled = stalled;
	c->maybe = maybe;
}

/*
 * All are stalled; is each of them for certain? A mark for another task is certain if that
 * task is. Least fixed point: a ring of tasks that wait for each other is no matter of
 * memory, and is left to the silence.
 */
static bool certain_from(const struct arb *a, const struct arb_context *c, unsigned depth)
{
	const struct arb_task *t = arbtask_find(a, c->wait_task);
	const struct arb_binding *b;

	if (!t || !t->certain || !depth)
		return false;
	if (!t->n_marks_task)
		return true;
	for (b = t->bindings; b; b = b->tnext)
		if (b->context->wait == ARB_WAIT_TASK && !certain_from(a, b->context, depth - 1))
			return false;
	return true;
}

bool arbtask_all_certain(const struct arb *a)
{
	const struct arb_context *c;

	if (a->n_certain != a->n_live_tasks)
		return false;
	DL_FOREACH2(a->task_waiters, c, wnext)
	if (!certain_from(a, c, 64))
		return false;
	return true;
}
