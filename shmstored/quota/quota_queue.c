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
 *
 * Puts that wait by createqueue.h do not stand in this queue. Each of their attempts is a request
 * that does not wait.
 */
#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "macros.h"
#include "quota_core.h"

#define TURNS       4u
/* attempts of one pass that fail: each looks at all stores. Later puts wait for the next pass */
#define FAILED_MOST 32u

/* In this order limits are looked at, and named to people. */
static const enum wire_limit order[] = {WIRE_LIMIT_USER, WIRE_LIMIT_LABEL, WIRE_LIMIT_PARTITION};

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
		unspent += t == but ? 0 : quota_credit_spare(q, t, all);
	if (unspent < missing && !all)
		return;
	QUOTA_EACH(t, g) {
		if (missing && !t->active && t != but)
			missing = take(t, quota_credit_spare(q, t, all), missing);
	}
	/* Those at work in turn, from where the last one stopped: all stores
	 * are in the partition's list. */
	s = q->victim;
	for (uint32_t i = 0; missing && i < q->partition->n_stores; i++) {
		s = s && s->links[WIRE_LIMIT_PARTITION].next ? s->links[WIRE_LIMIT_PARTITION].next
							     : q->partition->stores;
		if (s->groups[g->kind] == g && s != but)
			missing = take(s, quota_credit_spare(q, s, all), missing);
	}
	q->victim = s;
}

/*
 * Makes room for lack more bytes of s under all its limits, where need be out of others' unspent
 * credit. 0, or bits of the limits that hold it back.
 */
static uint32_t make_room(struct quota *q, struct quota_store *s, uint64_t lack)
{
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

static struct quota_wait *new_wait(struct quota_store *s, const struct quota_want *want)
{
	struct quota_wait *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->store = s;
	w->want = *want;
	DL_APPEND2(s->waits, w, prev_of, next_of);
	return w;
}

int quota_queue_add(struct quota *q, struct quota_store *s, const struct quota_want *want,
		    uint32_t held)
{
	struct quota_wait *w;

	if (s->n_queued >= q->config.waits_max)
		return -EMFILE;
	w = new_wait(s, want);
	if (!w)
		return -ENOMEM;
	w->want.look = want->look && !want->wait;
	w->natural = held;
	w->is = QUOTA_QUEUED;
	s->n_queued++;
	DL_APPEND(q->queue, w);
	count_waiting(w, 1);
	hold(w, held);
	return 0;
}

/* It waits no more. */
static void unqueue(struct quota *q, struct quota_wait *w)
{
	if (w->is == QUOTA_QUEUED) {
		hold(w, 0);
		count_waiting(w, UINT32_MAX);
		w->store->n_queued--;
		DL_DELETE(q->queue, w);
	} else {
		createqueue_drop(&q->puts, &w->at);
	}
	w->is = QUOTA_DONE;
}

void quota_queue_forget(struct quota *q, struct quota_wait *w)
{
	if (w->is == QUOTA_DONE)
		DL_DELETE(q->done, w);
	else
		unqueue(q, w);
	DL_DELETE2(w->store->waits, w, prev_of, next_of);
	free(w);
}

struct quota_wait *quota_queue_find(const struct quota_store *s, uint64_t serial)
{
	struct quota_wait *w = s->waits;

	/* A wait that is over is listed until it is told. */
	while (w && (w->want.serial != serial || w->is == QUOTA_DONE))
		w = w->next_of;
	return w;
}

int quota_queue_name(struct quota *q, const struct quota_store *s, uint32_t held,
		     struct quota_answer *ret)
{
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

/* ---- puts that wait by createqueue.h --------------------------------------------------------- */

/* Of a put that was refused for so much: may it have room later? */
static bool may_fit(const struct quota_want *want, int error, const struct quota_answer *a)
{
	return (error == -ENOSPC || error == -EDQUOT) && !(a->hard && want->need > a->hard);
}

static enum createqueue_got attempt(void *arg, struct createqueue_request *r, bool fallback)
{
	struct quota *q = arg;
	struct quota_wait *w = CONTAINER_OF(r, quota_wait, at);
	struct quota_want want = w->want;

	if (fallback || q->n_failed >= FAILED_MOST)
		return CREATEQUEUE_NO_ROOM;
	want.wait = false;
	want.probe = w->want.wait;
	w->error = quota_try(q, w->store, &want, &w->answer);
	if (!w->error)
		return CREATEQUEUE_GOT;
	if (!may_fit(&want, w->error, &w->answer))
		return CREATEQUEUE_REFUSED;
	q->n_failed++;
	if (want.need > q->missing)
		q->missing = want.need;
	return CREATEQUEUE_NO_ROOM;
}

static bool is_disk_full(void *arg)
{
	const struct quota *q = arg;

	return q->ops.disk_full(q->ops.arg);
}

/* One at a time: the one under way may suffice. After a failure the tier rests by itself. */
static bool spill(void *arg)
{
	const struct quota *q = arg;

	return q->ops.spill(q->ops.arg, 0) || q->ops.spill(q->ops.arg, q->missing);
}

void quota_put_init(struct quota *q)
{
	const struct createqueue_ops ops = {attempt, is_disk_full, spill, q};

	createqueue_init(&q->puts, q->config.puts, &ops);
	q->config.puts = &q->puts.config;
}

void quota_put_pass(struct quota *q)
{
	struct createqueue_request *r;

	if (q->passing || !q->puts.waiting)
		return;
	q->passing = true;
	q->missing = q->n_failed = 0;
	createqueue_process(&q->puts, q->now_ns);
	while ((r = q->puts.ended)) {
		struct quota_wait *w = CONTAINER_OF(r, quota_wait, at);

		if (w->want.wait && r->result == CREATEQUEUE_OUT_OF_DISK)
			w->error = -ENOBUFS;
		else if (w->want.wait && r->result == CREATEQUEUE_TIMED_OUT)
			w->error = -ETIMEDOUT;
		unqueue(q, w);
		DL_APPEND(q->done, w);
	}
	q->passing = false;
}

int quota_put_request(struct quota *q, struct quota_store *s, const struct quota_want *want,
		      struct quota_answer *ret)
{
	struct quota_want once = *want;
	struct quota_wait *w;
	bool pending;
	int r;

	if (!q->puts.waiting) {
		once.wait = false;
		once.probe = want->wait;
		r = quota_try(q, s, &once, ret);
		if (!want->wait || !may_fit(want, r, ret))
			return r;
	}
	*ret = (struct quota_answer){0};
	w = new_wait(s, want);
	if (!w)
		return -ENOMEM;
	/* Until it is tried: others hold it back. */
	w->error = -ENOSPC;
	w->is = QUOTA_PUT;
	if (!createqueue_add(&q->puts, &w->at, &s->puts, want->deadline_ns, q->now_ns)) {
		quota_queue_forget(q, w);
		return -EMFILE;
	}
	quota_put_pass(q);
	if (want->wait)
		return 1;
	*ret = w->answer;
	r = w->error;
	pending = w->is == QUOTA_PUT;
	quota_queue_forget(q, w);
	/* The queue does not know that it did not wait. */
	q->puts.counts.dropped -= pending;
	q->puts.counts.refused += pending;
	return r;
}
