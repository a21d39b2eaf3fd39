/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stagebook.c: the profiles by their amounts and ids, the sessions, and those that wait
 * in the order of their asking.
 *
 * held is the sum of what sessions have, and never more than total. A waiting session keeps its
 * amounts until it is granted; then it is measured against the free amounts and its own. It does
 * not hold back later ones that ask for less than is free: its time ends anyway.
 */
#include "stagebook.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/param.h>
#include <utlist.h>

#include "idtable.h"

/*
 * The rules. Amounts are at most STAGE_MIB_MAX; what a ratio would make of them beyond that counts
 * as so much, before the cap is looked at, so that no sum overflows.
 */

/* The share of the shared memory that a stage keeps whatever its private memory wants. */
#define FLOOR_DIV 10

const struct stage_config stage_defaults = {
	.mode = STAGE_HOST,
	.enabled = false,
	.shared_enabled = true,
	.private_ratio = {2, 1},
	.shared_ratio = {1, 2},
	.fallen_threshold = {1, 2},
	.whole_shared_div = 10,
	.wait_ms = 2000,
};

bool stage_ask_fits(const struct stage_ask *ask)
{
	return ask->n_native >= 0 && ask->n_native <= STAGE_NODES_MAX && ask->n_convert >= 0 &&
	       ask->n_convert <= STAGE_NODES_MAX && ask->n_other >= 0 &&
	       ask->n_other <= STAGE_NODES_MAX && ask->want_slots >= 0 &&
	       (!ask->has_nonshare || ask->nonshare.den);
}

bool stage_amounts_equal(const struct stage_amounts *a, const struct stage_amounts *b)
{
	return a->private_mib == b->private_mib && a->shared_mib == b->shared_mib &&
	       a->slots == b->slots;
}

static int64_t times(int64_t mib, struct ratio r)
{
	return MIN(ratio_floor(r, mib), STAGE_MIB_MAX);
}

/* Returns the rule of the fallback, whole or partial; 0: none. */
static unsigned fallen(const struct stage_config *c, const struct stage_ask *ask)
{
	int64_t all = ask->n_native + ask->n_convert + ask->n_other;
	bool nonshare = ask->has_nonshare && c->mode == STAGE_HOST;

	if (ask->fallback == STAGE_FALLBACK_NONE)
		return 0;
	if (ask->fallback != STAGE_FALLBACK_FOUND)
		return ask->fallback == STAGE_FALLBACK_WHOLE ? STAGE_RULE_WHOLE
							     : STAGE_RULE_PARTIAL;
	/* Nothing is known of the operators, which is not that none is native. */
	if (all && !ask->n_native)
		return STAGE_RULE_WHOLE;
	if (!all && nonshare && ratio_compare(ask->nonshare, RATIO(1, 1)) >= 0)
		return STAGE_RULE_WHOLE;
	if ((all > 0 && ratio_compare(RATIO((uint64_t)ask->n_other, (uint64_t)all),
				      c->fallen_threshold) >= 0) ||
	    (nonshare && ratio_compare(ask->nonshare, c->fallen_threshold) >= 0))
		return STAGE_RULE_PARTIAL;
	return 0;
}

/* private + shared within the cap: shared gives first, down to its floor, then
 * private, and slots with it. */
static bool clamp(struct stage_amounts *a, int64_t floor, int64_t cap)
{
	int64_t wanted = a->private_mib;

	if (a->private_mib + a->shared_mib <= cap)
		return false;
	floor = MIN(floor, a->shared_mib);
	a->shared_mib = MIN(a->shared_mib, MAX(floor, cap - a->private_mib));
	if (a->private_mib + a->shared_mib <= cap)
		return false;
	/* Here shared is floor. A cap below that leaves nothing private. */
	a->private_mib = MAX(cap - floor, 0);
	a->shared_mib = cap - a->private_mib;
	if (wanted)
		a->slots = MAX(1, ratio_floor(RATIO((uint64_t)a->private_mib, (uint64_t)wanted),
					      a->slots));
	return true;
}

struct stage_reply stage_evaluate(const struct stage_config *config,
				  const struct stage_amounts *base, const struct stage_ask *ask)
{
	struct stage_reply r = {.amounts = *base};
	int64_t cap = config->cap_mib ? config->cap_mib : base->private_mib + base->shared_mib;

	if (!config->enabled || !config->shared_enabled)
		return r;
	if (config->mode == STAGE_FIRST && ask->root == STAGE_FINAL)
		return r;
	r.rules = fallen(config, ask);
	if (r.rules)
		r.amounts.private_mib = times(base->private_mib, config->private_ratio);
	if (r.rules & STAGE_RULE_WHOLE)
		r.amounts.shared_mib = base->shared_mib / config->whole_shared_div;
	else if (r.rules & STAGE_RULE_PARTIAL)
		r.amounts.shared_mib = times(base->shared_mib, config->shared_ratio);
	if (config->mode == STAGE_FIRST)
		return r;
	if (ask->want_slots > 0)
		r.amounts.slots = MIN(base->slots, ask->want_slots);
	if (r.rules)
		r.clamped = clamp(&r.amounts, base->shared_mib / FLOOR_DIV, cap);
	return r;
}

bool stage_merge(const struct stage_amounts *a, const struct stage_amounts *b,
		 enum stage_conflict conflict, int64_t cap_mib, struct stage_amounts *ret)
{
	struct stage_amounts most = {
		.private_mib = MAX(a->private_mib, b->private_mib),
		.shared_mib = MAX(a->shared_mib, b->shared_mib),
		.slots = MAX(a->slots, b->slots),
	};

	if (conflict == STAGE_CONFLICT_ERROR && !stage_amounts_equal(a, b))
		return false;
	if (conflict == STAGE_CONFLICT_HOST) {
		if (!cap_mib)
			cap_mib =
				MAX(a->private_mib + a->shared_mib, b->private_mib + b->shared_mib);
		most.slots = MIN(a->slots, b->slots);
		(void)clamp(&most, most.shared_mib / FLOOR_DIV, cap_mib);
	}
	*ret = most;
	return true;
}

struct profile_entry {
	struct stage_amounts amounts; /* the key: three int64_t, no padding */
	uint32_t id;
	uint32_t n_users;                  /* sessions that have it, or wait for it */
	struct profile_entry *prev, *next; /* those asked for longest ago first */
	UT_hash_handle hh, by_id;
};

struct stagebook {
	struct stage_amounts base;
	int64_t total, held;
	struct profile_entry *profiles, *by_id, *asked; /* by their amounts, by their ids, a list */
	uint32_t last_id;
	struct stagebook_session *sessions;
	struct stagebook_session *waiting; /* also those that are granted, and not told so */
	uint32_t n_waiting;                /* without these */
};

struct stagebook *stagebook_new(const struct stage_amounts *base, int64_t total_mib)
{
	struct stagebook *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->base = *base;
	b->total = total_mib;
	return b;
}

static void forget(struct stagebook *b, struct profile_entry *p)
{
	HASH_DEL(b->profiles, p);
	HASH_DELETE(by_id, b->by_id, p);
	DL_DELETE(b->asked, p);
	free(p);
}

struct stagebook *stagebook_free(struct stagebook *b)
{
	if (!b)
		return NULL;
	while (b->asked)
		forget(b, b->asked);
	free(b);
	return NULL;
}

/* Of the profiles that no session has, the one that was asked for longest ago
 * goes. false: each is in use. */
static bool make_room(struct stagebook *b)
{
	struct profile_entry *p = b->asked;

	if (HASH_COUNT(b->profiles) < STAGEBOOK_PROFILES)
		return true;
	while (p && p->n_users)
		p = p->next;
	if (p)
		forget(b, p);
	return p != NULL;
}

static struct profile_entry *entry_of(const struct stagebook *b, uint32_t id)
{
	struct profile_entry *p;

	HASH_FIND(by_id, b->by_id, &id, sizeof(id), p);
	return p;
}

/* A session has it, or waits for it, or (by -1) does not any more. */
static void count_user(struct stagebook *b, uint32_t id, int by)
{
	struct profile_entry *p = id ? entry_of(b, id) : NULL;

	if (p)
		p->n_users += (uint32_t)by;
}

static struct profile_entry *entry_new(struct stagebook *b, const struct stage_amounts *amounts)
{
	struct profile_entry *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->amounts = *amounts;
	p->id = b->last_id + 1;
	HASH_ADD(hh, b->profiles, amounts, sizeof(p->amounts), p);
	if (!p->hh.tbl) {
		free(p);
		return NULL;
	}
	HASH_ADD(by_id, b->by_id, id, sizeof(p->id), p);
	if (!p->by_id.tbl) {
		HASH_DEL(b->profiles, p);
		free(p);
		return NULL;
	}
	b->last_id = p->id;
	DL_APPEND(b->asked, p);
	return p;
}

int stagebook_id(struct stagebook *b, const struct stage_amounts *amounts, uint32_t *ret)
{
	struct profile_entry *p;

	if (stage_amounts_equal(amounts, &b->base)) {
		*ret = 0;
		return 0;
	}
	HASH_FIND(hh, b->profiles, amounts, sizeof(*amounts), p);
	if (p) {
		DL_DELETE(b->asked, p);
		DL_APPEND(b->asked, p);
		*ret = p->id;
		return 0;
	}
	if (b->last_id == UINT32_MAX || !make_room(b))
		return -ENOSPC;
	p = entry_new(b, amounts);
	if (!p)
		return -ENOMEM;
	*ret = p->id;
	return 0;
}

bool stagebook_amounts(const struct stagebook *b, uint32_t id, struct stage_amounts *ret)
{
	const struct profile_entry *p = id ? entry_of(b, id) : NULL;

	if (id && !p)
		return false;
	*ret = p ? p->amounts : b->base;
	return true;
}

void stagebook_each(const struct stagebook *b,
		    bool (*fn)(uint32_t id, const struct stage_amounts *amounts, void *arg),
		    void *arg)
{
	const struct profile_entry *last = b->asked ? b->asked->prev : NULL;

	for (const struct profile_entry *p = last; p && fn(p->id, &p->amounts, arg); p = p->prev)
		if (p == b->asked)
			break;
}

static int64_t sum_of(const struct stage_amounts *a)
{
	return a->private_mib + a->shared_mib;
}

/* The profile if there is room for it; if not and at_once, as much of it as there is.
 * Private memory before shared. */
static bool grant(struct stagebook *b, struct stagebook_session *s, uint32_t profile, bool at_once)
{
	int64_t room = b->total - (b->held - sum_of(&s->has));
	struct stage_amounts amounts, has;

	if (!stagebook_amounts(b, profile, &amounts))
		return false;
	has = amounts;
	if (sum_of(&amounts) > room) {
		if (!at_once)
			return false;
		has.private_mib = MIN(has.private_mib, room);
		has.shared_mib = MIN(has.shared_mib, room - has.private_mib);
		has.slots = amounts.private_mib ? (int64_t)((__int128)amounts.slots *
							    has.private_mib / amounts.private_mib)
						: amounts.slots;
		has.slots = MAX(has.slots, 1);
	}
	b->held += sum_of(&has) - sum_of(&s->has);
	s->has = has;
	count_user(b, profile, 1);
	count_user(b, s->profile, -1);
	s->profile = profile;
	s->degraded = !stage_amounts_equal(&has, &amounts);
	return true;
}

/* Takes it out of the line: where it was granted, it need not be told any more. */
static void stop_waiting(struct stagebook *b, struct stagebook_session *s)
{
	if (s->waits)
		count_user(b, s->wanted, -1);
	if (s->waits || s->granted)
		DL_DELETE2(b->waiting, s, waiting_prev, waiting_next);
	b->n_waiting -= s->waits;
	s->waits = s->granted = false;
}

void stagebook_tick(struct stagebook *b, uint64_t now_ms)
{
	for (struct stagebook_session *s = b->waiting; s; s = s->waiting_next)
		if (s->waits && grant(b, s, s->wanted, now_ms >= s->until_ms)) {
			count_user(b, s->wanted, -1);
			s->waits = false;
			s->granted = true;
			b->n_waiting--;
		}
	/* Sessions outside of a stage and below the base get free amounts, after who waits. */
	for (struct stagebook_session *s = b->sessions; s && !b->n_waiting; s = s->next)
		if (!s->profile && s->degraded)
			(void)grant(b, s, 0, true);
}

struct stagebook_session *stagebook_next(struct stagebook *b)
{
	struct stagebook_session *s = b->waiting;

	while (s && !s->granted)
		s = s->waiting_next;
	if (s)
		stop_waiting(b, s);
	return s;
}

void stagebook_join(struct stagebook *b, struct stagebook_session *s)
{
	*s = (struct stagebook_session){0};
	DL_APPEND(b->sessions, s);
	(void)grant(b, s, 0, true);
}

void stagebook_leave(struct stagebook *b, struct stagebook_session *s)
{
	stop_waiting(b, s);
	count_user(b, s->profile, -1);
	b->held -= sum_of(&s->has);
	DL_DELETE(b->sessions, s);
	stagebook_tick(b, 0);
}

int stagebook_begin(struct stagebook *b, struct stagebook_session *s, uint32_t profile,
		    int64_t wait_ms, uint64_t now_ms)
{
	if (profile && !entry_of(b, profile))
		return -ENOENT;
	stop_waiting(b, s);
	if (grant(b, s, profile, wait_ms <= 0)) {
		stagebook_tick(b, now_ms);
		return 1;
	}
	s->wanted = profile;
	count_user(b, profile, 1);
	s->until_ms =
		now_ms > UINT64_MAX - (uint64_t)wait_ms ? UINT64_MAX : now_ms + (uint64_t)wait_ms;
	s->waits = true;
	b->n_waiting++;
	DL_APPEND2(b->waiting, s, waiting_prev, waiting_next);
	return 0;
}

void stagebook_end(struct stagebook *b, struct stagebook_session *s)
{
	stop_waiting(b, s);
	(void)grant(b, s, 0, true);
	stagebook_tick(b, 0);
}

int64_t stagebook_held_mib(const struct stagebook *b)
{
	return b->held;
}

uint64_t stagebook_next_ms(const struct stagebook *b)
{
	uint64_t next = UINT64_MAX;

	for (const struct stagebook_session *s = b->waiting; s; s = s->waiting_next)
		if (s->waits && s->until_ms < next)
			next = s->until_ms;
	return next;
}
