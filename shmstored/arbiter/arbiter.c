/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbiter.c: arb_step(): one message. Checks that concern every message are here; what a message
 * does is in the file of its subject (arbcore.h lists them); arbpump.c sees to what follows of it.
 */
#include "arbcore.h"

static void slabs_init(struct arb_slabs *s)
{
	arbslab_init(&s->contexts, sizeof(struct arb_context));
	arbslab_init(&s->tasks, sizeof(struct arb_task));
	arbslab_init(&s->bindings, sizeof(struct arb_binding));
	arbslab_init(&s->accounts, sizeof(struct arb_account));
	arbslab_init(&s->reservations, sizeof(struct arb_reservation));
	arbslab_init(&s->pins, sizeof(struct arb_pin));
}

static void slabs_deinit(struct arb_slabs *s)
{
	arbslab_deinit(&s->contexts);
	arbslab_deinit(&s->tasks);
	arbslab_deinit(&s->bindings);
	arbslab_deinit(&s->accounts);
	arbslab_deinit(&s->reservations);
	arbslab_deinit(&s->pins);
}

int arb_new(struct arb **ret)
{
	struct arb *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
#define KNOB(NAME, name, value, least, most) a->knobs[ARB_KNOB_##NAME] = (value);
#include "arbiter.def"
	slabs_init(&a->slabs);
	if (arbpark_room(a, 0) < 0)
		return (void)arb_free(a), -ENOMEM;
	*ret = a;
	return 0;
}

static void free_pins(struct arb *a, struct arb_reservation *r)
{
	struct arb_pin *pin, *next;

	DL_FOREACH_SAFE(r->pins, pin, next)
	arbslab_put(&a->slabs.pins, pin);
}

struct arb *arb_free(struct arb *a)
{
	struct arb_context *c, *c_next;
	struct arb_reservation *r, *r_next;
	struct arb_task *t, *t_next;
	struct arb_pool *p, *p_next;
	struct arb_binding *b, *b_next;

	if (!a)
		return NULL;
	HASH_ITER(hh, a->contexts, c, c_next)
	{
		LL_FOREACH_SAFE2(c->bindings, b, b_next, cnext)
		arbslab_put(&a->slabs.bindings, b);
		arbbind_free(a, c);
	}
	HASH_ITER(hh, a->reservations, r, r_next)
	{
		free_pins(a, r);
		HASH_DEL(a->reservations, r);
		arbslab_put(&a->slabs.reservations, r);
	}
	HASH_ITER(hh, a->tasks, t, t_next)
	{
		HASH_DEL(a->tasks, t);
		arbtask_free(a, t);
	}
	HASH_ITER(hh, a->ended, t, t_next)
	{
		HASH_DEL(a->ended, t);
		arbtask_free(a, t);
	}
	HASH_ITER(hh, a->pools, p, p_next)
	{
		HASH_DEL(a->pools, p);
		free(p);
	}
	slabs_deinit(&a->slabs);
	free(a->out);
	free(a);
	return NULL;
}

/* ---- messages of contexts that fit nowhere else ---------------------------------------------- */

static void set_wait(struct arb *a, struct arb_context *c, enum arb_wait wait, uint64_t task)
{
	struct arb_binding *b;

	if (c->wait == ARB_WAIT_TASK)
		DL_DELETE2(a->task_waiters, c, wprev, wnext);
	for (b = c->bindings; b; b = b->cnext)
		arbtask_mark(b->task, c, (uint32_t)-1);
	c->wait = wait;
	c->wait_task = task;
	if (wait == ARB_WAIT_TASK)
		DL_APPEND2(a->task_waiters, c, wprev, wnext);
	for (b = c->bindings; b; b = b->cnext)
		arbtask_mark(b->task, c, 1);
	arbtask_count(a, c);
	for (b = c->bindings; b; b = b->cnext)
		arbtask_eval(a, b->task);
	a->look = true;
}

static enum arb_outcome wait_on(struct arb *a, struct arb_context *c, const struct arb_message *m)
{
	if (!c || c->kind != ARB_DEDICATED)
		return ARB_INVALID;
	if (m->op == ARB_OP_WAIT_OFF) /* any message clears the mark: done already */
		return ARB_OK;
	if (m->kind < ARB_WAIT_POOL || m->kind > ARB_WAIT_EXTERNAL ||
	    (m->kind == ARB_WAIT_TASK) != (m->other != 0))
		return ARB_INVALID;
	set_wait(a, c, (enum arb_wait)m->kind, m->other);
	return ARB_OK;
}

static enum arb_outcome os_block(struct arb *a, struct arb_context *c, const struct arb_message *m)
{
	if (!c)
		return ARB_INVALID;
	c->os_blocked = m->value != 0;
	arbtask_count(a, c);
	a->look = true;
	return ARB_OK;
}

static enum arb_outcome bracket(struct arb *a, struct arb_context *c, const struct arb_message *m)
{
	if (!c)
		return ARB_INVALID;
	if (m->op == ARB_OP_RETRY_END)
		return arbroll_retry_end(a, c, m->value != 0);
	if (m->op != ARB_OP_RETRY_BEGIN) {
		c->in_spill = m->op == ARB_OP_SPILL_BEGIN;
		return ARB_OK;
	}
	c->in_retry = true;
	c->lost_ns = 0;
	c->run_ns = a->now_ns;
	return ARB_OK;
}

static enum arb_outcome cancel(struct arb *a, struct arb_context *c, const struct arb_message *m)
{
	enum arb_outcome o = m->kind == ARB_TIMEDOUT ? ARB_TIMEDOUT : ARB_CANCELED;
	struct arb_task *t = arbtask_find(a, m->task);

	if ((m->kind && m->kind != ARB_TIMEDOUT && m->kind != ARB_CANCELED) ||
	    (m->context ? !c : !t))
		return ARB_INVALID;
	if (m->context) {
		arbpark_cancel(a, c, o);
		return ARB_OK;
	}
	for (struct arb_binding *b = t->bindings; b; b = b->tnext)
		arbpark_cancel(a, b->context, o);
	return ARB_OK;
}

static enum arb_outcome knob(struct arb *a, const struct arb_message *m)
{
	struct arb_context *c;
	struct arb_pool *p;

	if (m->kind < ARB_KNOB_MAX_BYPASS || m->kind > ARB_KNOB_OS_PROBE || m->value < 0)
		return ARB_INVALID;
	a->knobs[m->kind] = m->value;
	for (c = a->contexts; c && m->kind == ARB_KNOB_OS_PROBE; c = c->hh.next)
		arbtask_count(a, c);
	for (p = a->pools; p; p = p->hh.next) {
		p->closer_known = false;
		arbnote_dirty(a, p);
	}
	a->look = true;
	return ARB_OK;
}

static enum arb_outcome shut_down(struct arb *a)
{
	a->down = true;
	while (a->contexts)
		arbbind_forget(a, a->contexts);
	return ARB_OK;
}

/* ---- the step -------------------------------------------------------------------------------- */

/* A message is one of a set of operations. */
#define ONE(name) (UINT64_C(1) << ARB_OP_##name)

static bool one_of(enum arb_op op, uint64_t set)
{
	return (unsigned)op < 64 && (set >> op & 1);
}

/* About a context, or of others: not sent by it. */
#define ABOUT     (ONE(CANCEL) | ONE(INJECT) | ONE(OSBLOCK))
/* Messages of the daemon: no sign of life of a client. The second set: if they name no context. */
#define DAEMONS   (ONE(TICK) | ONE(KNOB) | ONE(OSBLOCK) | ONE(POOL_RESIZE))
#define DAEMONS_2 (ONE(RESIZE) | ONE(SPILLED))
/* Not while a call of the context is withheld. */
#define FREE_HAND                                                                        \
	(ONE(READY) | ONE(RETRY_BEGIN) | ONE(RETRY_END) | ONE(WAIT_ON) | ONE(WAIT_OFF) | \
	 ONE(SPILL_BEGIN) | ONE(SPILL_END))

/* Its sender does not wait any more, whatever its mark says. */
static bool clears_mark(const struct arb_message *m)
{
	if (m->op == ARB_OP_RESERVE)
		return !(m->flags & (ARB_NONBLOCK | ARB_SPILL));
	return !one_of(m->op, ABOUT);
}

static bool is_heard(const struct arb_message *m)
{
	return !one_of(m->op, DAEMONS) && (m->context || !one_of(m->op, DAEMONS_2));
}

/* Replies that a message may free without a parked context or a victim of today. */
static size_t room_for(const struct arb *a, const struct arb_message *m)
{
	const struct arb_task *t = m->op == ARB_OP_TASK_END ? arbtask_find(a, m->task) : NULL;
	const struct arb_account *account;
	const struct arb_reservation *r;
	const struct arb_pin *pin;
	size_t n = 4;

	if (!t)
		return n;
	LL_FOREACH(t->accounts, account)
	DL_FOREACH2(account->owned, r, own_next)
	n += 2;
	DL_FOREACH2(t->pins, pin, tnext)
	n += 2;
	return n;
}

static int dispatch(struct arb *a, struct arb_context *c, const struct arb_message *m,
		    enum arb_outcome *ret)
{
	*ret = ARB_INVALID;
	if (c && arbcontext_parked(c) && one_of(m->op, FREE_HAND))
		return 0;
	switch (m->op) {
#define MAKES(call) return (call);
#define DOES(call)     \
	*ret = (call); \
	return 0;
#define OP(NAME, form, call) \
	case ARB_OP_##NAME:  \
		form(call)
#include "arbiter.def"
	case ARB_OP_NONE:
	default:
		return 0;
	}
}

int arb_step(struct arb *a, const struct arb_message *m, uint64_t now_ns,
	     const struct arb_reply **ret, size_t *ret_n)
{
	enum arb_outcome o = ARB_INVALID;
	struct arb_context *c;
	int err;

	if (arbpark_room(a, room_for(a, m)) < 0)
		return -ENOMEM;
	a->now_ns = MAX(a->now_ns, now_ns);
	a->n_out = 0;
	a->early_done = false;
	a->message = NULL;
	if (arbclock_expire(a))
		arbpump_settle(a);
	a->message = m;
	c = m->context ? arbcontext_find(a, m->context) : NULL;
	if (c && c->wait && clears_mark(m))
		set_wait(a, c, 0, 0);
	err = dispatch(a, c, m, &o);
	a->totals.n_messages++;
	if (is_heard(m))
		a->silent = 0;
	arbpump_settle(a);
	a->message = NULL;
	*ret = a->out;
	*ret_n = a->n_out;
	return err < 0 ? err : (int)o;
}
