/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbledger.c: whose bytes are where, and which of them can leave.
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
	if (!r->hh.tbl) {
		arbslab_put(&a->slabs.reservations, r);
		return NULL;
	}
	arbitem_enter(a, &r->hold.item, ARB_HOLDS, id);
	return r;
}

void arbledger_forget(struct arb *a, struct arb_reservation *r)
{
	arb_leave(&r->hold.item, ARB_HOLDS);
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

/* bytes more (or less) of r are of the sealed ones of its client, or of the others. */
static void count_client(const struct arb_reservation *r, int64_t bytes)
{
	struct arb_group *g = r->hold.item.group;

	if (g && r->pool->kind == ARB_PARTITION)
		g->bytes[r->sealed] = (uint64_t)((int64_t)g->bytes[r->sealed] + bytes);
}

void arbledger_seal(struct arb_reservation *r)
{
	count_client(r, -(int64_t)r->bytes);
	r->sealed = true;
	count_client(r, (int64_t)r->bytes);
}

/* bytes more (or less) of r are in the pool. */
static void add(struct arb *a, struct arb_reservation *r, int64_t bytes)
{
	struct arb_pool *p = r->pool;

	r->bytes = (uint64_t)((int64_t)r->bytes + bytes);
	count_client(r, bytes);
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

bool arbledger_repin(struct arb *a, struct arb_reservation *r)
{
	struct arb_account *to = holder_now(r);

	if (r->spill || (to == r->holder && !r->refused))
		return false;
	arbspill_remove(a, r);
	forgive(a, r);
	if (r->holder)
		r->used_seq = ++a->seq;
	change_holder(a, r, to);
	arbspill_add(a, r);
	arbnote_dirty(a, r->pool);
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

/* ---- reclaimable reservations ---------------------------------------------------------------- */
/*
 * Victims are ordered: lowest priority of their owner first, of these the one that was unpinned
 * longest ago. Jobs are started for ALLOC contexts only, as many bytes as they still lack; what
 * nobody waits for any more is called off. Only bytes that really left count: what could not be
 * spilled is refused until it changes, so that nobody is asked for it for ever.
 *
 * A sealed reservation is an object and goes as a whole; of the others (leases, what the disk tier
 * could give) the missing part is enough.
 */
static struct arb_reservation *victim_of(const struct arbtree_node *n)
{
	return CONTAINER_OF(n, arb_reservation, node);
}

static int victim_cmp(const struct arbtree_node *x, const struct arbtree_node *y)
{
	const struct arb_reservation *r = victim_of(x), *s = victim_of(y);

	if (r->priority != s->priority)
		return r->priority < s->priority ? -1 : 1;
	return r->used_seq < s->used_seq ? -1 : r->used_seq > s->used_seq;
}

static void victim_pull(UNUSED struct arbtree_node *n)
{
}

static const struct arbtree_ops victim_ops = {.cmp = victim_cmp, .pull = victim_pull};

static void ask(struct arb *a, struct arb_reservation *r, uint64_t bytes)
{
	a->out[a->n_out++] = (struct arb_reply){.kind = ARB_REPLY_SPILL,
						.pool = r->pool->id,
						.reservation = r->id,
						.bytes = bytes,
						.group = r->hold.item.group};
}

void arbspill_end_job(struct arb_reservation *r)
{
	r->pool->wanted -= (int64_t)r->wanted;
	r->wanted = 0;
	r->job = false;
	DL_DELETE2(r->pool->jobs, r, job_prev, job_next);
}

void arbspill_add(struct arb *a, struct arb_reservation *r)
{
	if (r->holder || r->spill || !r->bytes)
		return;
	if (!r->used_seq)
		r->used_seq = ++a->seq;
	a->n_unpinned++;
	arbtree_insert(&r->pool->victims, &r->node, arbtree_heat(++a->tree_seq), &victim_ops);
}

void arbspill_remove(struct arb *a, struct arb_reservation *r)
{
	if (r->job) {
		ask(a, r, 0);
		arbspill_end_job(r);
		a->n_unpinned--;
	} else if (arbtree_in(&r->node)) {
		arbtree_remove(&r->pool->victims, &r->node, &victim_ops);
		a->n_unpinned--;
	}
}

/* Bytes that ALLOC contexts still lack; where not all of them fit, the best that do. */
static int64_t lacking(const struct arb_pool *p)
{
	int64_t reach = arbpool_reach(p), sum = p->alloc;
	const struct arb_want *w = NULL;

	if (sum > reach) {
		for (sum = 0; (w = arbline_best_fit(&p->waiting, reach - sum, w, false));)
			sum += w->alloc ? (int64_t)w->bytes : 0;
	}
	return sum ? MAX(sum - arbpool_free(p), 0) : 0;
}

void arbspill_balance(struct arb *a, struct arb_pool *p)
{
	int64_t target = lacking(p), missing;
	struct arbtree_node *first;
	struct arb_reservation *r;

	/* Jobs bring more than anybody waits for: the youngest are called off. */
	while (p->jobs && p->wanted > target) {
		r = p->jobs->job_prev;
		if (p->wanted - (int64_t)r->wanted < target)
			return;
		ask(a, r, 0);
		arbspill_end_job(r);
		arbtree_insert(&p->victims, &r->node, arbtree_heat(++a->tree_seq), &victim_ops);
	}
	while (p->wanted < target) {
		first = arbtree_end(&p->victims, 0);
		if (!first)
			return;
		r = victim_of(first);
		missing = target - p->wanted;
		arbtree_remove(&p->victims, &r->node, &victim_ops);
		r->job = true;
		r->wanted = r->sealed || (int64_t)r->bytes < missing ? r->bytes : (uint64_t)missing;
		p->wanted += (int64_t)r->wanted;
		DL_APPEND2(p->jobs, r, job_prev, job_next);
		ask(a, r, r->wanted);
	}
}
