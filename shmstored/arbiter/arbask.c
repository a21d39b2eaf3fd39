/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbask.c: requests for bytes: RESERVE, RESIZE to more, PIN of what was spilled. From
 * their checks to their booking.
 *
 * All memory that a request may ever need is taken here, before anything changes: its reservations
 * (found by nobody while they have no owner), the accounts of all tasks to which it may be booked,
 * room for replies. So a decision never fails.
 */
#include "arbcore.h"

struct request {
	const struct arb_message *m;
	struct arb_context *c; /* NULL: of nobody */
	uint32_t n;
	const uint64_t *pools, *amounts;
	uint64_t flags;
};

/* ---- granting -------------------------------------------------------------------------------- */

/* All that was spilled of it is back. Others who wait for the same have it, too. */
static void bring_back(struct arb *a, struct arb_context *c, struct arb_reservation *r,
		       uint64_t bytes)
{
	struct arb_context *other, *next;

	r->pool->spilled -= bytes;
	r->spilled -= bytes;
	DL_FOREACH_SAFE2(r->askers, other, next, anext)
	{
		if (other == c || other->call != ARB_CALL_PIN || !other->line)
			continue;
		other->call_pin = (struct arb_call_pin){0}; /* it stays */
		arbpark_leave_line(a, other);
		arbpark_complete(a, other, ARB_OK, NULL);
		arbpark_state(a, other, ARB_RUNNING, ARB_OK, "another brought it back");
	}
}

void arbask_grant(struct arb *a, struct arb_context *c, const struct arb_ask *ask)
{
	ARB_EACH_WANT(w, ask) {
		arbfit_passes(w->pool, &c->rank);
		if (!w->res->owner) {
			arbledger_book(a, w->res, w->account, w->bytes);
			w->res = NULL;
		} else {
			arbledger_grow(a, w->res, w->bytes);
			if (c->call == ARB_CALL_PIN)
				bring_back(a, c, w->res, w->bytes);
		}
		if (w->pool->n_waiting)
			arbnote_dirty(a, w->pool);
	}
	c->call_pin = (struct arb_call_pin){0}; /* it stays */
}

static bool too_big(const struct arb_ask *ask)
{
	ARB_EACH_WANT(w, ask)
		if ((int64_t)w->bytes > arbpool_most(w->pool)) {
			w->pool->n_toobig++;
			return true;
		}
	return false;
}

/* A request larger than the pool never blocks others. */
static void look_at_need(struct arb_want *w)
{
	w->may_close = (int64_t)w->need <= arbpool_limit(w->pool);
}

/* It waits for more bytes than it did. */
static void ask_more(struct arb *a, struct arb_want *w, uint64_t bytes)
{
	const bool waits = w->context->line == ARB_LINE_WAITING;

	w->need += bytes - w->bytes;
	if (waits && w->alloc)
		w->pool->alloc += (int64_t)(bytes - w->bytes);
	if (waits)
		arbstuck_drop(w);
	w->bytes = bytes;
	if (!waits)
		return;
	look_at_need(w);
	arbline_weigh(w, (int64_t)bytes, w->alloc);
	w->pool->closer_known = false;
	if (w->account->task)
		arbstuck_refresh(a, w->account->task);
}

void arbask_follow(struct arb *a, struct arb_reservation *r)
{
	struct arb_context *c, *next;

	DL_FOREACH_SAFE2(r->askers, c, next, anext)
	{
		if (c->call != ARB_CALL_PIN || c->ask->want->bytes == r->spilled)
			continue;
		ask_more(a, c->ask->want, r->spilled);
		if (too_big(c->ask))
			arbpark_cancel(a, c, ARB_TOOBIG);
	}
}

void arbask_enter(struct arb *a, struct arb_context *c)
{
	enum arb_fit fit = arbfit_ask(c->ask);
	bool closed = arbfit_ask_closed(a, c, c->ask);

	if (fit == ARB_FIT_FREE && !closed) {
		arbask_grant(a, c, c->ask);
		arbpark_complete(a, c, ARB_OK, NULL);
		return;
	}
	ARB_EACH_WANT(w, c->ask) {
		w->need = w->bytes + arbledger_pinned(c, w->pool);
		look_at_need(w);
		w->passed = 0;
		w->pool->n_waits++;
	}
	if (fit == ARB_FIT_SPILL && !closed) {
		arbpark_line_up(a, c, ARB_LINE_WAITING, true);
		arbpark_state(a, c, ARB_ALLOC, ARB_OK, "bytes can be spilled for it");
		return;
	}
	arbpark_line_up(a, c, ARB_LINE_WAITING, false);
	arbpark_state(a, c, ARB_BLOCKED, ARB_OK,
		      closed ? "closed by one above that was passed too often" : "does not fit");
}

static bool fits_now(const struct arb *a, const struct arb_context *c, const struct arb_ask *ask)
{
	return arbfit_ask(ask) == ARB_FIT_FREE && !arbfit_ask_closed(a, c, ask);
}

/* The request is in c->ask. Withheld, unless it is answered at once. */
static enum arb_outcome submit(struct arb *a, struct arb_context *c, enum arb_call call,
			       const struct arb_message *m)
{
	c->call = call; /* for the booking */
	if (c->state == ARB_RUNNING && fits_now(a, c, c->ask)) {
		arbask_grant(a, c, c->ask);
		arbpark_clear(a, c);
		c->call = ARB_CALL_NONE;
		return ARB_OK;
	}
	if (m->deadline_ns && m->deadline_ns <= a->now_ns) {
		arbpark_clear(a, c);
		c->call = ARB_CALL_NONE;
		a->totals.n_timeouts++;
		return ARB_TIMEDOUT;
	}
	c->call_reservation = m->reservation;
	arbpark_park(a, c, call, m->deadline_ns);
	if (c->state == ARB_RUNNING)
		arbask_enter(a, c);
	else
		arbpark_state(a, c, ARB_BUFN, ARB_OK, "asked for more after RETRY");
	return ARB_PENDING;
}

/* ---- outcomes on demand ---------------------------------------------------------------------- */

/*
 * For tests of clients. They change no state; RETRY and SPLIT are counted, but not against the
 * limit. They are looked at when a request begins, in the order of enum arb_inject: the context's
 * own, then those of its tasks. A match first uses up skip, then count.
 */
static const struct {
	int kind;
	enum arb_outcome outcome;
} injections[] = {
	{ARB_INJECT_RETRY, ARB_RETRY},       {ARB_INJECT_ERROR, ARB_ERROR},
	{ARB_INJECT_SPLIT, ARB_SPLIT},       {ARB_INJECT_TOOBIG, ARB_TOOBIG},
	{ARB_INJECT_TIMEDOUT, ARB_TIMEDOUT},
};

enum arb_outcome arbask_inject(struct arb *a, const struct arb_message *m)
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

static void count_injected(struct arb *a, struct arb_context *c, const struct arb_pool *p,
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

static enum arb_outcome inject_hit(struct arb *a, struct arb_context *c, const struct arb_pool *p)
{
	if (!a->n_injections)
		return ARB_OK;
	for (size_t k = 0; k < sizeof(injections) / sizeof(injections[0]); k++) {
		bool is = hit(&c->inject[injections[k].kind], p);

		for (struct arb_binding *b = c->bindings; b && !is; b = b->cnext)
			is = hit(&b->task->inject[injections[k].kind], p);
		if (is) {
			count_injected(a, c, p, injections[k].outcome);
			return injections[k].outcome;
		}
	}
	return ARB_OK;
}

/* ---- RESERVE --------------------------------------------------------------------------------- */

static bool valid(const struct arb *a, const struct request *q)
{
	struct arb_reservation *r;
	uint64_t id;

	if (!q->m->reservation || q->n > ARB_LIST_MAX || !q->n ||
	    (q->m->n_list && (!q->pools || !q->amounts)))
		return false;
	for (uint32_t i = 0; i < q->n; i++) {
		id = q->m->reservation + i;
		HASH_FIND(hh, a->reservations, &id, sizeof(id), r);
		if (!id || r || !arbpool_find(a, q->pools[i]) ||
		    ((q->flags & ARB_FORCE) && q->amounts[i] > ARB_LARGEST))
			return false;
		for (uint32_t k = 0; k < i; k++)
			if (q->pools[k] == q->pools[i])
				return false;
	}
	return true;
}

static bool larger_than_pool(const struct arb *a, const struct request *q)
{
	struct arb_pool *p;

	for (uint32_t i = 0; i < q->n; i++) {
		p = arbpool_find(a, q->pools[i]);
		if (q->amounts[i] > INT64_MAX || (int64_t)q->amounts[i] > arbpool_most(p)) {
			p->n_toobig++;
			return true;
		}
	}
	return false;
}

/* The account to which a request of c's is booked, with those of all tasks to which it may be
 * booked one day. NULL: no memory. */
static struct arb_account *accounts_for(struct arb *a, struct arb_context *c, struct arb_pool *p)
{
	for (struct arb_binding *b = c->bindings; b; b = b->cnext)
		if (!arbledger_account(a, b->task, p))
			return NULL;
	return arbledger_find(c->bindings->task, p);
}

static int room_for_wants(struct arb_ask *ask, uint32_t n)
{
	struct arb_want *want;

	if (n == 1 && ask->want == ask->one) {
		memset(ask->want, 0, sizeof(*ask->want));
		return 0;
	}
	want = n == 1 ? ask->one : calloc(n, sizeof(*want));
	if (!want)
		return -ENOMEM;
	if (ask->want != ask->one)
		free(ask->want);
	ask->want = want;
	if (n == 1)
		memset(want, 0, sizeof(*want));
	return 0;
}

/* Everything that q's wants need: accounts, reservations. */
static int fill(struct arb *a, const struct request *q, struct arb_ask *ask)
{
	struct arb_want *w;
	uint32_t i = 0;

	for (; i < q->n; i++) {
		w = &ask->want[i];
		w->context = q->c;
		w->pool = arbpool_find(a, q->pools[i]);
		w->bytes = q->amounts[i];
		w->account = q->c ? accounts_for(a, q->c, w->pool) : &w->pool->nobody;
		w->res = w->account ? arbledger_make(a, w->pool, q->m->reservation + i) : NULL;
		if (!w->res)
			goto out;
		w->res->aside = q->c && q->c->in_spill;
	}
	ask->n = q->n;
	return 0;
out:
	while (i--)
		arbledger_forget(a, ask->want[i].res);
	return -ENOMEM;
}

static bool spill_path_fits(const struct arb_ask *ask)
{
	ARB_EACH_WANT(w, ask)
		if (w->bytes > ARB_LARGEST || w->pool->used + (int64_t)w->bytes > w->pool->capacity)
			return false;
	return true;
}

/* Answered at once, whatever the answer is: NONBLOCK, SPILL, nobody's. */
static int reserve_now(struct arb *a, const struct request *q, enum arb_outcome *ret)
{
	enum arb_outcome no =
		q->c || (q->flags & (ARB_NONBLOCK | ARB_SPILL)) ? ARB_AGAIN : ARB_NOMEM;
	bool spill = q->flags & ARB_SPILL, force = !q->m->context && (q->flags & ARB_FORCE), fits;
	struct arb_want one, *w;
	struct arb_ask ask = {.want = &one, .one = &one};

	*ret = no;
	if (!spill && !force && larger_than_pool(a, q)) {
		*ret = no == ARB_NOMEM ? ARB_TOOBIG : ARB_AGAIN;
		return 0;
	}
	if (room_for_wants(&ask, q->n) < 0 || fill(a, q, &ask) < 0) {
		if (ask.want != &one)
			free(ask.want);
		return -ENOMEM;
	}
	fits = force || (spill ? spill_path_fits(&ask) : arbfit_ask(&ask) == ARB_FIT_FREE);
	for (w = ask.want; w < ask.want + ask.n && fits && q->c && !spill; w++)
		fits = !arbfit_closed(a, w->pool, &q->c->rank);
	for (w = ask.want; w < ask.want + ask.n; w++) {
		if (!fits) {
			arbledger_forget(a, w->res);
			continue;
		}
		w->res->spill = spill;
		if (q->c && !spill)
			arbfit_passes(w->pool, &q->c->rank);
		arbledger_book(a, w->res, spill ? &w->pool->nobody : w->account, w->bytes);
		w->pool->over = w->pool->used > w->pool->capacity;
		if (w->pool->n_waiting)
			arbnote_dirty(a, w->pool);
	}
	if (ask.want != &one)
		free(ask.want);
	*ret = fits ? ARB_OK : no;
	return 0;
}

/* The want of a context is some lines of memory away, and only needed where it must wait. */
static int reserve_one(struct arb *a, const struct request *q, enum arb_outcome *ret)
{
	struct arb_want one = {0};
	struct arb_ask ask = {.want = &one, .one = &one};

	if (fill(a, q, &ask) < 0)
		return -ENOMEM;
	*ret = ARB_OK;
	if (q->c->state == ARB_RUNNING && fits_now(a, q->c, &ask)) {
		arbask_grant(a, q->c, &ask);
		return 0;
	}
	if (room_for_wants(q->c->ask, 1) < 0) { /* never: it makes none */
		arbledger_forget(a, one.res);
		return -ENOMEM;
	}
	*q->c->ask->want = one;
	q->c->ask->n = 1;
	*ret = submit(a, q->c, ARB_CALL_RESERVE, q->m);
	return 0;
}

int arbask_reserve(struct arb *a, struct arb_context *c, const struct arb_message *m,
		   enum arb_outcome *ret)
{
	struct request q = {.m = m,
			    .c = c,
			    .n = m->n_list ? m->n_list : 1,
			    .pools = m->n_list ? m->list : &m->pool,
			    .amounts = m->n_list ? m->amounts : &m->bytes,
			    .flags = m->flags};
	bool at_once = !q.c || (m->flags & (ARB_NONBLOCK | ARB_SPILL));

	*ret = ARB_INVALID;
	if (!valid(a, &q) || (!at_once && arbcontext_parked(q.c)))
		return 0;
	if (at_once)
		return reserve_now(a, &q, ret);
	*ret = ARB_OK;
	for (uint32_t i = 0; i < q.n && *ret == ARB_OK; i++)
		*ret = inject_hit(a, q.c, arbpool_find(a, q.pools[i]));
	if (*ret != ARB_OK)
		return 0;
	if (larger_than_pool(a, &q)) {
		*ret = ARB_TOOBIG;
		a->totals.n_toobig++;
		arbnote_transition(a, q.c, q.c->state, q.c->state, ARB_TOOBIG,
				   "more than the pool will ever have");
		return 0;
	}
	if (q.n == 1)
		return reserve_one(a, &q, ret);
	if (room_for_wants(c->ask, q.n) < 0 || fill(a, &q, c->ask) < 0)
		return -ENOMEM;
	*ret = submit(a, c, ARB_CALL_RESERVE, m);
	return 0;
}

/* ---- RESIZE, PIN ----------------------------------------------------------------------------- */

/* bytes more of r, which is there. */
static int ask_for_more(struct arb *a, const struct arb_message *m, struct arb_reservation *r,
			uint64_t bytes, enum arb_call call, enum arb_outcome *ret)
{
	struct arb_context *c = arbcontext_find(a, m->context);
	bool wait = c && !(m->flags & ARB_NONBLOCK), force = !m->context && (m->flags & ARB_FORCE);
	struct arb_account *account;
	struct arb_want *w;

	*ret = ARB_OK;
	if (!force && (int64_t)bytes > arbpool_most(r->pool) - (int64_t)r->bytes) {
		r->pool->n_toobig++;
		*ret = m->flags & ARB_NONBLOCK ? ARB_AGAIN : ARB_TOOBIG;
	} else if (!force && !wait && (int64_t)bytes > arbpool_free(r->pool)) {
		*ret = m->flags & ARB_NONBLOCK ? ARB_AGAIN : ARB_NOMEM;
	}
	if (*ret != ARB_OK)
		return 0;
	if (!wait) {
		arbledger_grow(a, r, bytes);
		if (call == ARB_CALL_PIN)
			bring_back(a, NULL, r, bytes);
		r->pool->over = r->pool->used > r->pool->capacity;
		arbnote_dirty(a, r->pool);
		return 0;
	}
	account = accounts_for(a, c, r->pool);
	if (!account || room_for_wants(c->ask, 1) < 0)
		return -ENOMEM;
	w = c->ask->want;
	*w = (struct arb_want){
		.context = c, .pool = r->pool, .account = account, .res = r, .bytes = bytes};
	c->ask->n = 1;
	DL_APPEND2(r->askers, c, aprev, anext);
	*ret = submit(a, c, call, m);
	return 0;
}

int arbask_resize(struct arb *a, struct arb_context *c, const struct arb_message *m,
		  enum arb_outcome *ret)
{
	struct arb_reservation *r = arbreservation_find(a, m->reservation);

	*ret = ARB_INVALID;
	if (!r || r->spill || m->bytes > ARB_LARGEST ||
	    (c && arbcontext_parked(c) && !(m->flags & ARB_NONBLOCK)))
		return 0;
	if (m->bytes > r->bytes)
		return ask_for_more(a, m, r, m->bytes - r->bytes, ARB_CALL_RESIZE, ret);
	/* it is as large as is said now: there is nothing left to wait for */
	bring_back(a, NULL, r, r->spilled);
	arbledger_shrink(a, r, r->bytes - m->bytes);
	a->look = true;
	*ret = ARB_OK;
	return 0;
}

int arbask_pin(struct arb *a, struct arb_context *c, const struct arb_message *m,
	       enum arb_outcome *ret)
{
	struct arb_reservation *r = arbreservation_find(a, m->reservation);
	struct arb_task *t = arbtask_find(a, m->task);
	struct arb_account *account;
	struct arb_call_pin what;
	struct arb_pin *pin;
	bool own, had;
	int err;

	*ret = ARB_INVALID;
	if (!r || r->spill || (m->task && !t) || (c && arbcontext_parked(c)))
		return 0;
	own = !m->task || r->owner->task == t;
	had = own ? r->owner_pins : arbledger_find_pin(r, t) != NULL;
	if (!own && !had) {
		account = arbledger_account(a, t, r->pool);
		pin = account ? arbslab_get(&a->slabs.pins) : NULL;
		if (!pin)
			return -ENOMEM;
		*pin = (struct arb_pin){.res = r, .account = account};
		DL_APPEND(r->pins, pin);
		DL_APPEND2(t->pins, pin, tprev, tnext);
	}
	if (own)
		r->owner_pins = true;
	arbledger_repin(a, r);
	a->look = true;
	*ret = ARB_OK;
	if (!r->spilled)
		return 0;
	what = (struct arb_call_pin){
		.pin = own ? NULL : arbledger_find_pin(r, t), .owner = own, .made = !had};
	if (c)
		c->call_pin = what;
	err = ask_for_more(a, m, r, r->spilled, ARB_CALL_PIN, ret);
	if (c && *ret == ARB_TIMEDOUT) /* taken back with its ask */
		what.made = false;
	if (err < 0 || (*ret != ARB_OK && *ret != ARB_PENDING))
		arbpark_take_back_pin(a, r, what);
	if (c && (err < 0 || *ret != ARB_PENDING))
		c->call_pin = (struct arb_call_pin){0};
	return err;
}
