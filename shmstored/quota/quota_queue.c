/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quota_queue.c: the order in which requests get room or wait for it.
 *
 * One queue, in the order of arrival. A walk goes through it from its head; a request that a limit
 * holds back closes that limit for all behind it, so nobody overtakes under the same limit, and a
 * wait for another limit holds back nobody here. A request over its user's or its label's limit
 * does not close the partition. Users and labels cross: a request that is held by one and then by
 * the other, again and again, would starve; after TURNS changes it closes both.
 *
 * Room is made out of credit that other stores have not charged: of idle ones all, of those at work
 * what is missing, each in its turn; and only where it suffices. A store keeps a fresh grant for a
 * moment: else a large request would lose to small ones behind it, over and over.
 */
#include <errno.h>
#include <utlist.h>

#include "quota_core.h"

#define TURNS 4u

static uint32_t bit(enum wire_limit kind)
{
	return 1u << kind;
}

static uint32_t over(struct quota *q, const struct quota_store *s, uint64_t lack)
{
	uint32_t held = 0;

	QUOTA_EACH_LIMIT(g, s, WIRE_LIMIT_USER, WIRE_LIMIT_LABEL)
		if (quota_group_over(q, g, lack))
			held |= bit(g->kind);
	if (!held && quota_group_over(q, s->groups[WIRE_LIMIT_PARTITION], lack))
		held = bit(WIRE_LIMIT_PARTITION);
	return held;
}

/* Bytes that may be taken of a store; all: also those that it is about to use. */
static uint64_t spare(const struct quota *q, const struct quota_store *s, bool all)
{
	return all ? quota_credit_unspent(s) : quota_credit_spare(q, s);
}

/* Returns the bytes that are still missing. */
static uint64_t take(struct quota_store *s, uint64_t n, uint64_t missing)
{
	uint64_t taken = quota_credit_take(s, n < missing || !s->active ? n : missing);

	return taken < missing ? missing - taken : 0;
}

/* all: also where it does not suffice. */
static void take_back(struct quota *q, struct quota_group *g, const struct quota_store *but,
		      uint64_t missing, bool all)
{
	uint64_t unspent = 0;
	struct quota_store *s;

	QUOTA_EACH(t, g)
		unspent += t == but ? 0 : spare(q, t, all);
	if (unspent < missing && !all)
		return;
	QUOTA_EACH(t, g) {
		if (missing && !t->active && t != but)
			missing = take(t, spare(q, t, all), missing);
	}
	/* Those at work in turn, from where the last one stopped: all stores
	 * are in the partition's list. */
	s = q->victim;
	for (uint32_t i = 0; missing && i < q->partition->n_stores; i++) {
		s = s && s->links[WIRE_LIMIT_PARTITION].next ? s->links[WIRE_LIMIT_PARTITION].next
							     : q->partition->stores;
		if (s->groups[g->kind] == g && s != but)
			missing = take(s, spare(q, s, all), missing);
	}
	q->victim = s;
}

/*
 * Makes room for lack more bytes of s under all its limits, where need be out of others' unspent
 * credit. 0, or bits of the limits that hold it back.
 */
static uint32_t make_room(struct quota *q, struct quota_store *s, uint64_t lack)
{
	static const enum wire_limit order[] = {WIRE_LIMIT_USER, WIRE_LIMIT_LABEL,
						WIRE_LIMIT_PARTITION};

	if (!over(q, s, lack))
		return 0;
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		struct quota_group *g = s->groups[order[i]];
		uint64_t missing;

		if (!g || !quota_group_over(q, g, lack))
			continue;
		quota_credit_read_all(q, g);
		missing = quota_group_over(q, g, lack);
		if (missing)
			take_back(q, g, s, missing, false);
	}
	return over(q, s, lack);
}

void quota_queue_restore(struct quota *q, struct quota_group *g)
{
	/* A store's own limit is not kept by credit. */
	uint64_t missing = g->kind == WIRE_LIMIT_STORE ? 0 : quota_group_over(q, g, 0);

	if (!missing)
		return;
	quota_credit_read_all(q, g);
	missing = quota_group_over(q, g, 0);
	if (missing)
		take_back(q, g, NULL, missing, true);
}

/* Bytes to grant ahead of what is needed, where lack fits. */
static uint64_t ahead_of(struct quota *q, const struct quota_store *s, uint64_t lack,
			 uint64_t ahead)
{
	if (ahead > q->config.credit)
		ahead = q->config.credit;
	QUOTA_EACH_SHARED(g, s) {
		uint64_t sum, share;

		if (!g->hard || !ahead)
			continue;
		sum = quota_group_used(q, g) + g->out + lack;
		share = (g->hard > sum ? g->hard - sum : 0) /
			(2 * (g->n_active ? (uint64_t)g->n_active : 1));
		if (ahead > share)
			ahead = share;
	}
	return ahead - ahead % QUOTA_PAGE;
}

uint32_t quota_queue_grant(struct quota *q, struct quota_store *s, const struct quota_want *want,
			   uint32_t held, struct quota_answer *ret)
{
	uint64_t lack = quota_credit_lack(s, want->need);

	if (lack) {
		if (!held)
			held = make_room(q, s, lack);
		if (held)
			return held;
		ret->bytes = lack + ahead_of(q, s, lack, want->ahead);
		quota_credit_grant(q, s, ret->bytes, want->need);
	}
	ret->granted = s->granted;
	return 0;
}

uint32_t quota_queue_held(const struct quota_store *s)
{
	uint32_t held = 0;

	QUOTA_EACH_SHARED(g, s)
		held |= g->n_holding ? bit(g->kind) : 0;
	return held;
}

static void hold(struct quota_wait *w, uint32_t held)
{
	QUOTA_EACH_SHARED(g, w->store) {
		g->n_holding += (held & bit(g->kind)) != 0;
		g->n_holding -= (w->held & bit(g->kind)) != 0;
	}
	w->held = held;
}

static void count_waiting(const struct quota_wait *w, uint32_t n)
{
	QUOTA_EACH_OF(g, w->store)
		g->n_waiting += n;
}

void quota_queue_add(struct quota *q, struct quota_wait *w, const struct quota_want *want,
		     uint32_t held)
{
	*w = (struct quota_wait){.store = w->store, .want = *want, .queued = true, .natural = held};
	w->want.look = want->look && !want->wait;
	DL_APPEND(q->queue, w);
	count_waiting(w, 1);
	hold(w, held);
}

static void unqueue(struct quota *q, struct quota_wait *w)
{
	hold(w, 0);
	count_waiting(w, UINT32_MAX);
	DL_DELETE(q->queue, w);
	w->queued = false;
}

void quota_queue_forget(struct quota *q, struct quota_wait *w)
{
	if (w->queued)
		unqueue(q, w);
	else
		DL_DELETE(q->done, w);
	w->want.serial = 0;
}

struct quota_wait *quota_queue_find(const struct quota *q, struct quota_store *s, uint64_t serial)
{
	for (struct quota_wait *w = s->pool; w < s->pool + q->config.waits_max; w++) {
		/* A wait that is over keeps its serial until it is told. */
		if (w->want.serial == serial && w->queued == (serial != 0))
			return w;
	}
	return NULL;
}

int quota_queue_name(struct quota *q, const struct quota_store *s, uint32_t held,
		     struct quota_answer *ret)
{
	static const enum wire_limit order[] = {WIRE_LIMIT_USER, WIRE_LIMIT_LABEL,
						WIRE_LIMIT_PARTITION};
	const enum wire_limit *limit = order;
	const struct quota_group *g;

	if (!held)
		return 0;
	while (!(held & bit(*limit)))
		limit++;
	g = s->groups[*limit];
	ret->limit = *limit;
	ret->id = quota_group_id(g);
	ret->hard = g->hard;
	ret->used = quota_group_used(q, g) + g->out;
	return ret->limit == WIRE_LIMIT_PARTITION ? -ENOSPC : -EDQUOT;
}

void quota_queue_end(struct quota *q, struct quota_wait *w, int error, uint32_t held)
{
	unqueue(q, w);
	w->error = error;
	quota_queue_name(q, w->store, held, &w->answer);
	DL_APPEND(q->done, w);
}

void quota_queue_note(struct quota *q, struct quota_store *s, uint32_t held, uint64_t lack,
		      bool refused)
{
	QUOTA_EACH_SHARED(g, s) {
		uint64_t missing;

		if (!(held & bit(g->kind)))
			continue;
		missing = quota_group_over(q, g, lack);
		if (missing > g->deficit)
			g->deficit = missing;
		g->n_refused += refused;
		q->loose_refused |= g->loose;
		quota_group_level(q, g, 2);
	}
}

uint32_t quota_queue_never(const struct quota_store *s, uint64_t need)
{
	uint32_t held = 0;

	QUOTA_EACH_SHARED(g, s)
		held |= g->hard && need > g->hard ? bit(g->kind) : 0;
	return held;
}

static void refuse(struct quota *q, struct quota_wait *w, uint32_t held)
{
	quota_queue_note(q, w->store, held, w->want.need, true);
	quota_queue_end(q, w, held == bit(WIRE_LIMIT_PARTITION) ? -ENOSPC : -EDQUOT, held);
}

/* It waits on, and closes limits for requests behind it. */
static void close_limits(struct quota *q, struct quota_wait *w, uint32_t held)
{
	const uint32_t crossing = bit(WIRE_LIMIT_USER) | bit(WIRE_LIMIT_LABEL);

	if (held != w->natural)
		w->turns++;
	w->natural = held;
	hold(w, w->turns < TURNS || !(held & crossing) ? held : held | crossing);
	QUOTA_EACH_SHARED(g, w->store)
		if (w->held & bit(g->kind))
			g->walk = q->walk;
}

/* One request: served, or what holds it back. */
static uint32_t serve(struct quota *q, struct quota_wait *w)
{
	struct quota_store *s = w->store;
	uint32_t held = 0;

	quota_credit_read(q, s);
	if (s->liar) {
		quota_queue_end(q, w, -EPERM, 0);
		return 0;
	}
	QUOTA_EACH_SHARED(g, s)
		held |= g->walk == q->walk ? bit(g->kind) : 0;
	held = quota_queue_grant(q, s, &w->want, held, &w->answer);
	if (held)
		quota_queue_note(q, s, held, quota_credit_lack(s, w->want.need), false);
	else
		quota_queue_end(q, w, 0, 0);
	return held;
}

void quota_queue_walk(struct quota *q, uint64_t now_ns)
{
	struct quota_wait *w, *next;

	q->now_ns = now_ns;
	q->walk++;
	DL_FOREACH_SAFE(q->queue, w, next)
	{
		uint32_t never = quota_queue_never(w->store, w->want.need),
			 held = never ? never : serve(q, w);
		bool late = now_ns >= w->want.deadline_ns;

		if (!held)
			continue;
		if (never || (late && w->want.look))
			refuse(q, w, held);
		else if (late)
			quota_queue_end(q, w, -ETIMEDOUT, held);
		else
			close_limits(q, w, held);
	}
}
