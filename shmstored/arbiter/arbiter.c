/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbiter.c: arb_step(): one message. Checks that concern every message are here, and all that none
 * waits for: pools, and what becomes of a reservation. Other messages are in the files of their
 * subjects (arbcore.h lists them); arbpump.c sees to what follows of them.
 */
#include "arbcore.h"

int arb_new(struct arb **ret)
{
	struct arb *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
#define KNOB(NAME, name, value, least, most) a->knobs[ARB_KNOB_##NAME] = (value);
#include "arbiter.def"
	arbslab_init(&a->slabs.contexts, sizeof(struct arb_context));
	arbslab_init(&a->slabs.tasks, sizeof(struct arb_task));
	arbslab_init(&a->slabs.bindings, sizeof(struct arb_binding));
	arbslab_init(&a->slabs.accounts, sizeof(struct arb_account));
	arbslab_init(&a->slabs.reservations, sizeof(struct arb_reservation));
	arbslab_init(&a->slabs.pins, sizeof(struct arb_pin));
	if (arbpark_room(a, 0) < 0)
		return (void)arb_free(a), -ENOMEM;
	*ret = a;
	return 0;
}

struct arb *arb_free(struct arb *a)
{
	struct arb_context *c, *c_next;
	struct arb_reservation *r, *r_next;
	struct arb_task *t, *t_next;
	struct arb_pool *p, *p_next;
	struct arb_binding *b, *b_next;
	struct arb_pin *pin, *pin_next;

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
		DL_FOREACH_SAFE(r->pins, pin, pin_next)
		arbslab_put(&a->slabs.pins, pin);
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
	arbslab_deinit(&a->slabs.contexts);
	arbslab_deinit(&a->slabs.tasks);
	arbslab_deinit(&a->slabs.bindings);
	arbslab_deinit(&a->slabs.accounts);
	arbslab_deinit(&a->slabs.reservations);
	arbslab_deinit(&a->slabs.pins);
	free(a->out);
	free(a);
	return NULL;
}

/* ---- pools: made, resized, removed ----------------------------------------------------------- */

static int pool_create(struct arb *a, const struct arb_message *m, enum arb_outcome *ret)
{
	struct arb_pool *p;

	*ret = ARB_INVALID;
	if (!m->pool || arbpool_find(a, m->pool) || m->kind < ARB_PARTITION ||
	    m->kind > ARB_PRIVATE)
		return 0;
	if (m->bytes > ARB_LARGEST || m->extra > m->bytes)
		return 0;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->id = m->pool;
	HASH_ADD(hh, a->pools, id, sizeof(p->id), p);
	if (!p->hh.tbl) {
		free(p);
		return -ENOMEM;
	}
	p->kind = (enum arb_pool_kind)m->kind;
	p->capacity = (int64_t)m->bytes;
	p->spill_reserve = (int64_t)m->extra;
	p->nobody.pool = p;
	arbitem_enter(a, &p->item, ARB_POOLS, p->id);
	if (m->name)
		(void)strncpy(p->name, m->name, ARB_NAME_MAX);
	*ret = ARB_OK;
	return 0;
}

static bool asks_over(const struct arb_context *c, const struct arb_pool *p, int64_t most)
{
	for (uint32_t i = 0; i < c->ask->n; i++)
		if (c->ask->want[i].pool == p && (int64_t)c->ask->want[i].bytes > most)
			return true;
	return false;
}

/* Answers waiting and rolled-back requests that are larger than the pool will ever be. */
static void turn_away(struct arb *a, struct arb_pool *p)
{
	const int64_t most = arbpool_most(p);
	struct arb_context *c;
	struct arb_want *w;

	for (c = a->n_bufn ? a->contexts : NULL; c; c = c->hh.next) {
		if (c->state != ARB_BUFN || !asks_over(c, p, most))
			continue;
		p->n_toobig++;
		arbpark_cancel(a, c, ARB_TOOBIG);
	}

	while ((w = arbline_over(&p->waiting, most, false)) != NULL) {
		p->n_toobig++;
		arbpark_cancel(a, w->context, ARB_TOOBIG);
	}
}

static enum arb_outcome pool_resize(struct arb *a, const struct arb_message *m)
{
	struct arb_pool *p = arbpool_find(a, m->pool);

	if (!p || m->bytes > ARB_LARGEST)
		return ARB_INVALID;
	if (p->capacity == (int64_t)m->bytes)
		return ARB_OK;
	p->capacity = (int64_t)m->bytes;
	p->over = p->used > p->capacity;
	turn_away(a, p);
	arbnote_dirty(a, p);
	a->look = true;
	return ARB_OK;
}

static enum arb_outcome pool_remove(struct arb *a, const struct arb_message *m)
{
	struct arb_pool *p = arbpool_find(a, m->pool);
	struct arb_account *account, *next;

	if (!p || p->n_reservations || p->n_waiting || p->n_rolled || p->promised)
		return ARB_INVALID;
	DL_FOREACH_SAFE2(p->accounts, account, next, pnext)
	{
		arbseen_add(&account->task->former, &account->stats);
		LL_DELETE(account->task->accounts, account);
		arbslab_put(&a->slabs.accounts, account);
	}
	HASH_DEL(a->pools, p);
	arb_leave(&p->item, ARB_POOLS);
	free(p);
	return ARB_OK;
}

/* ---- what becomes of a reservation ----------------------------------------------------------- */

static enum arb_outcome hold_release(struct arb *a, const struct arb_message *m)
{
	struct arb_reservation *r = arbreservation_find(a, m->reservation);

	if (!r)
		return ARB_INVALID;
	arbbind_destroy(a, r);
	a->look = true;
	return ARB_OK;
}

/* An object that is larger than what was reserved for it is there all the same: its pool may be
 * over its capacity until it fits again. */
static enum arb_outcome hold_seal(struct arb *a, const struct arb_message *m)
{
	struct arb_reservation *r = arbreservation_find(a, m->reservation);

	if (!r || r->spill || r->askers || r->spilled || m->bytes > ARB_LARGEST)
		return ARB_INVALID;
	if (m->bytes && m->bytes < r->bytes)
		arbledger_shrink(a, r, r->bytes - m->bytes);
	else if (m->bytes > r->bytes)
		arbledger_grow(a, r, m->bytes - r->bytes);
	r->pool->over = r->pool->used > r->pool->capacity;
	arbledger_seal(r);
	arbnote_dirty(a, r->pool);
	a->look = true;
	return ARB_OK;
}

static enum arb_outcome hold_unpin(struct arb *a, const struct arb_message *m)
{
	struct arb_reservation *r = arbreservation_find(a, m->reservation);
	struct arb_pin *pin;

	if (!r || r->spill)
		return ARB_INVALID;
	if (!m->task || (r->owner->task && r->owner->task->id == m->task)) {
		arbledger_owner_unpins(r);
	} else {
		pin = arbledger_find_pin(r, arbtask_find(a, m->task));
		if (pin)
			arbledger_drop_pin(a, pin);
	}
	arbledger_repin(a, r); /* also where nothing changed: it may be tried again */
	a->look = true;
	return ARB_OK;
}

/* Is there only because of calls that are withheld so far. */
static bool is_of_calls(const struct arb_reservation *r, const struct arb_pin *pin)
{
	const struct arb_context *c;

	DL_FOREACH2(r->askers, c, anext)
	if (c->call_pin.made && c->call_pin.pin == pin)
		return true;
	return false;
}

/* The new owner pinned it as another's, or is about to: now as its own. */
static void pin_as_owner(struct arb *a, struct arb_reservation *r, struct arb_pin *pin)
{
	const bool stays = (r->owner_pins && !is_of_calls(r, NULL)) || !is_of_calls(r, pin);
	struct arb_context *c;

	DL_FOREACH2(r->askers, c, anext)
	{
		if (c->call_pin.pin == pin)
			c->call_pin =
				(struct arb_call_pin){.owner = true, .made = c->call_pin.made};
		if (c->call_pin.owner && stays)
			c->call_pin.made = false;
	}
	arbledger_drop_pin(a, pin);
	r->owner_pins = true;
}

static int hold_own(struct arb *a, const struct arb_message *m, enum arb_outcome *ret)
{
	struct arb_reservation *r = arbreservation_find(a, m->reservation);
	struct arb_task *t = arbtask_find(a, m->task);
	struct arb_account *to;
	struct arb_pin *pin;

	*ret = ARB_INVALID;
	if (!r || r->spill || (m->task && !t))
		return 0;
	to = t ? arbledger_account(a, t, r->pool) : &r->pool->nobody;
	if (!to)
		return -ENOMEM;
	pin = t ? arbledger_find_pin(r, t) : NULL;
	if (pin)
		pin_as_owner(a, r, pin);
	if (to != r->owner)
		arbledger_own(a, r, to);
	a->look = true;
	*ret = ARB_OK;
	return 0;
}

/* bytes of r have left, or could not; last: nothing more comes of the job that was asked for. */
static void left(struct arb *a, struct arb_reservation *r, uint64_t bytes, bool last)
{
	uint64_t brought = bytes < r->wanted ? bytes : r->wanted;

	r->wanted -= brought;
	r->pool->wanted -= (int64_t)brought;
	arbledger_leave(a, r, bytes);
	if (!last && bytes && r->wanted && r->bytes)
		return;
	if (r->wanted && r->bytes)
		arbledger_refuse(a, r);
	arbspill_end_job(r);
	a->n_unpinned--;
	arbspill_add(a, r);
}

static enum arb_outcome hold_spilled(struct arb *a, const struct arb_message *m)
{
	struct arb_reservation *r = arbreservation_find(a, m->reservation);

	if (!r || m->bytes > r->bytes || (m->bytes && r->spill))
		return ARB_INVALID;
	if (r->job) {
		left(a, r, m->bytes, m->flags & ARB_ALL);
	} else if (m->bytes) { /* unasked, or its job was called off too late */
		arbspill_remove(a, r);
		arbledger_leave(a, r, m->bytes);
		arbspill_add(a, r);
	}
	arbask_follow(a, r);
	arbnote_dirty(a, r->pool);
	a->look = true;
	return ARB_OK;
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
		return arbpump_retry_end(a, c, m->value != 0);
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
	bool expired = false;
	int err;

	if (arbpark_room(a, room_for(a, m)) < 0)
		return -ENOMEM;
	a->now_ns = MAX(a->now_ns, now_ns);
	a->n_out = 0;
	a->early_done = false;
	a->message = NULL;
	for (; a->deadlines && a->deadlines->at <= a->now_ns; expired = true)
		arbpark_cancel(a, CONTAINER_OF(a->deadlines, arb_context, deadline), ARB_TIMEDOUT);
	if (expired)
		arbpump_settle(a);
	a->message = m;
	c = m->context ? arbcontext_find(a, m->context) : NULL;
	if (c && c->wait && clears_mark(m))
		set_wait(a, c, 0, 0);
	err = dispatch(a, c, m, &o);
	a->totals.n_messages++;
	if (!one_of(m->op, DAEMONS) && (m->context || !one_of(m->op, DAEMONS_2)))
		a->silent = 0;
	arbpump_settle(a);
	a->message = NULL;
	*ret = a->out;
	*ret_n = a->n_out;
	return err < 0 ? err : (int)o;
}
