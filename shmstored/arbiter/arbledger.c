/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbledger.c: whose bytes are where.
 *
 * A reservation is owned by one task's account in its pool, or by the pool's nobody; its bytes
 * count there whoever takes and frees them. Pinned bytes count in the account of one holder: the
 * owner if it pins, else the first other task that does. A pool keeps the sums that decisions need,
 * each changed where its parts change:
 *
 *   used = pinned + reclaimable + spill_used
 *   stuck_bytes = pinned of stalled tasks and of nobody
 *   promised = what those who were let out still lack of their need
 *
 * Frees of others change the owner's numbers. An account outlives its task's end with what was
 * counted, until the task is forgotten.
 */
#include "arbcore.h"

struct arb_account *arbledger_find(const struct arb_task *t, const struct arb_pool *p)
{
	struct arb_account *account = t->accounts;

	while (account && account->pool != p)
		account = account->next;
	return account;
}

struct arb_account *arbledger_account(struct arb *a, struct arb_task *t, struct arb_pool *p)
{
	struct arb_account *account = arbledger_find(t, p);

	if (account)
		return account;
	account = arbslab_get(&a->slabs.accounts);
	if (!account)
		return NULL;
	account->task = t;
	account->pool = p;
	LL_PREPEND(t->accounts, account);
	DL_APPEND2(p->accounts, account, pprev, pnext);
	return account;
}

uint64_t arbledger_pinned(const struct arb_context *c, const struct arb_pool *p)
{
	const struct arb_account *account;
	uint64_t pinned = 0;

	for (const struct arb_binding *b = c->bindings; b; b = b->cnext) {
		account = arbledger_find(b->task, p);
		pinned += account ? account->pinned : 0;
	}
	return pinned;
}

int64_t arbledger_lacking(const struct arb_want *w)
{
	const struct arb_account *account;
	uint64_t own = 0;

	for (const struct arb_binding *b = w->context->bindings; b; b = b->cnext) {
		account = arbledger_find(b->task, w->pool);
		if (account)
			own += account->pinned + account->promised;
	}
	return (int64_t)w->need - (int64_t)own;
}

/* Pinned bytes or the promise changed: weighs waiting and rolled-back requests anew. */
static void follow(struct arb *a, struct arb_account *account)
{
	if (!account->task || !account->task->n_waiting)
		return;
	for (struct arb_binding *b = account->task->bindings; b; b = b->tnext) {
		if (b->context->line != ARB_LINE_ROLLED)
			continue;
		ARB_EACH_WANT(w, b->context->attempt)
			if (w->pool == account->pool && arbtree_in(&w->node))
				arbline_weigh(w, arbledger_lacking(w), false);
	}
	if (account->task->stalled)
		arbstuck_refresh(a, account->task);
}

static void promise_left(struct arb_account *account)
{
	uint64_t left;

	if (account->promise && account->pinned >= account->promise) {
		account->promise = 0; /* kept */
		account->promised_to = NULL;
	}
	left = account->promise - (account->promise ? account->pinned : 0);
	account->pool->promised += (int64_t)left - (int64_t)account->promised;
	account->promised = left;
}

void arbledger_promise(struct arb_account *account, const struct arb_context *to, uint64_t need)
{
	if (!need && account->promised_to != to)
		return;
	account->promise = need;
	account->promised_to = need ? to : NULL;
	promise_left(account);
}

static void pin_bytes(struct arb *a, struct arb_account *account, int64_t bytes)
{
	if (!bytes)
		return;
	account->pinned = (uint64_t)((int64_t)account->pinned + bytes);
	if (!account->task || account->task->stalled)
		account->pool->stuck_bytes += bytes;
	promise_left(account);
	follow(a, account);
}

void arbledger_stall(struct arb_task *t, bool stalled)
{
	for (struct arb_account *account = t->accounts; account; account = account->next)
		account->pool->stuck_bytes +=
			stalled ? (int64_t)account->pinned : -(int64_t)account->pinned;
}

/* ---- reservations ---------------------------------------------------------------------------- */

struct arb_reservation *arbledger_make(struct arb *a, struct arb_pool *p, uint64_t id)
{
	struct arb_reservation *r = arbslab_get(&a->slabs.reservations);

	if (!r)
		return NULL;
	r->id = id;
	r->pool = p;
	r->owner_pins = true;
	HASH_ADD(hh, a->reservations, id, sizeof(r->id), r);
	if (r->hh.tbl)
		return r;
	arbslab_put(&a->slabs.reservations, r);
	return NULL;
}

void arbledger_forget(struct arb *a, struct arb_reservation *r)
{
	HASH_DEL(a->reservations, r);
	arbslab_put(&a->slabs.reservations, r);
}

static void count(struct arb_account *account, int64_t bytes, bool aside)
{
	struct arb_stats *s = &account->stats;

	s->current = (uint64_t)((int64_t)s->current + bytes);
	if (!aside)
		account->active = (uint64_t)((int64_t)account->active + bytes);
	s->max = MAX(s->max, s->current);
	s->footprint = MAX(s->footprint, account->active);
}

/* bytes more (or less) of r are in the pool. */
static void add(struct arb *a, struct arb_reservation *r, int64_t bytes)
{
	struct arb_pool *p = r->pool;

	r->bytes = (uint64_t)((int64_t)r->bytes + bytes);
	p->used += bytes;
	if (r->spill)
		p->spill_used += bytes;
	else if (!r->holder)
		p->reclaimable += bytes;
	if (p->used > (int64_t)p->max_used)
		p->max_used = (uint64_t)p->used;
	count(r->owner, bytes, r->aside);
	if (r->holder)
		pin_bytes(a, r->holder, bytes);
	if (p->used <= p->capacity)
		p->over = false;
}

static void grant_stats(struct arb_reservation *r)
{
	struct arb_stats *s = &r->owner->stats;

	r->pool->n_grants++;
	s->n_grants++;
	s->max_used = MAX(s->max_used, (uint64_t)r->pool->used);
}

void arbledger_book(struct arb *a, struct arb_reservation *r, struct arb_account *owner,
		    uint64_t bytes)
{
	r->owner = owner;
	r->pool->n_reservations++;
	DL_APPEND2(owner->owned, r, own_prev, own_next);
	r->priority = owner->task ? owner->task->priority : INT64_MAX;
	r->holder = r->spill ? NULL : owner;
	add(a, r, (int64_t)bytes);
	grant_stats(r);
}

static void hold(struct arb *a, struct arb_reservation *r, int64_t bytes)
{
	if (r->holder)
		pin_bytes(a, r->holder, bytes);
	else
		r->pool->reclaimable += bytes;
}

static struct arb_account *holder_now(const struct arb_reservation *r)
{
	if (r->owner_pins)
		return r->owner;
	return r->pins ? r->pins->account : NULL;
}

static void change_holder(struct arb *a, struct arb_reservation *r, struct arb_account *to)
{
	hold(a, r, -(int64_t)r->bytes);
	r->holder = to;
	hold(a, r, (int64_t)r->bytes);
}

/* Nobody pins it, and it could not be spilled: as good as pinned by its owner, until it changes. */
void arbledger_refuse(struct arb *a, struct arb_reservation *r)
{
	r->refused = true;
	change_holder(a, r, r->owner);
}

/* A reservation that could not be spilled may be tried again. */
static void forgive(struct arb *a, struct arb_reservation *r)
{
	if (!r->refused)
		return;
	r->refused = false;
	change_holder(a, r, holder_now(r));
}

void arbledger_grow(struct arb *a, struct arb_reservation *r, uint64_t bytes)
{
	arbspill_remove(a, r);
	forgive(a, r);
	add(a, r, (int64_t)bytes);
	grant_stats(r);
	arbspill_add(a, r);
}

static void freed(struct arb *a, struct arb_pool *p)
{
	p->freed = true;
	arbnote_dirty(a, p);
}

void arbledger_shrink(struct arb *a, struct arb_reservation *r, uint64_t bytes)
{
	arbspill_remove(a, r);
	forgive(a, r);
	add(a, r, -(int64_t)bytes);
	arbspill_add(a, r);
	freed(a, r->pool);
}

void arbledger_leave(struct arb *a, struct arb_reservation *r, uint64_t bytes)
{
	add(a, r, -(int64_t)bytes);
	r->spilled += bytes;
	r->pool->spilled += bytes;
	arbnote_dirty(a, r->pool);
}

void arbledger_destroy(struct arb *a, struct arb_reservation *r)
{
	struct arb_pool *p = r->pool;

	arbspill_remove(a, r);
	if (r->bytes)
		add(a, r, -(int64_t)r->bytes);
	while (r->pins)
		arbledger_drop_pin(a, r->pins);
	p->spilled -= r->spilled;
	p->n_reservations--;
	DL_DELETE2(r->owner->owned, r, own_prev, own_next);
	arbledger_forget(a, r);
	freed(a, p);
}

/* ---- pins ------------------------------------------------------------------------------------ */

struct arb_pin *arbledger_find_pin(const struct arb_reservation *r, const struct arb_task *t)
{
	struct arb_pin *pin = r->pins;

	while (pin && pin->account->task != t)
		pin = pin->next;
	return pin;
}

static void move_hold(struct arb *a, struct arb_reservation *r, struct arb_account *to)
{
	arbspill_remove(a, r);
	forgive(a, r);
	if (r->holder)
		r->used_seq = ++a->seq;
	change_holder(a, r, to);
	arbspill_add(a, r);
	arbnote_dirty(a, r->pool);
}

bool arbledger_repin(struct arb *a, struct arb_reservation *r)
{
	struct arb_account *to = holder_now(r);

	if (r->spill || (to == r->holder && !r->refused))
		return false;
	move_hold(a, r, to);
	return true;
}

void arbledger_own(struct arb *a, struct arb_reservation *r, struct arb_account *to)
{
	arbspill_remove(a, r);
	count(r->owner, -(int64_t)r->bytes, r->aside);
	DL_DELETE2(r->owner->owned, r, own_prev, own_next);
	r->owner = to;
	r->priority = to->task ? to->task->priority : INT64_MAX;
	DL_APPEND2(to->owned, r, own_prev, own_next);
	count(to, (int64_t)r->bytes, r->aside);
	if (!arbledger_repin(a, r)) { /* a victim still, by another's priority */
		arbspill_add(a, r);
		arbnote_dirty(a, r->pool);
	}
}

void arbledger_drop_pin(struct arb *a, struct arb_pin *pin)
{
	struct arb_reservation *r = pin->res;
	struct arb_context *c;

	DL_FOREACH2(r->askers, c, anext)
	if (c->call_pin.pin == pin)
		c->call_pin = (struct arb_call_pin){0};
	DL_DELETE(r->pins, pin);
	DL_DELETE2(pin->account->task->pins, pin, tprev, tnext);
	arbslab_put(&a->slabs.pins, pin);
	arbledger_repin(a, r);
}

void arbledger_owner_unpins(struct arb_reservation *r)
{
	struct arb_context *c;

	r->owner_pins = false;
	DL_FOREACH2(r->askers, c, anext)
	if (c->call_pin.owner)
		c->call_pin = (struct arb_call_pin){0};
}
