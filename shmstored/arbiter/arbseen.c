/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbseen.c: inspection: copies of what is, for people and tests. Nothing here changes anything,
 * but arb_stats() with ARB_RESET.
 */
#include <stdarg.h>
#include <stdio.h>

#include "amount.h"
#include "arbcore.h"
#include "arbiter.h"

uint64_t arb_next_deadline(const struct arb *a)
{
	return a->deadlines ? a->deadlines->at : 0;
}

size_t arb_n_parked(const struct arb *a)
{
	return a->n_parked;
}

int64_t arb_knob(const struct arb *a, enum arb_knob k)
{
	return k >= ARB_KNOB_MAX_BYPASS && k <= ARB_KNOB_OS_PROBE ? a->knobs[k] : 0;
}

/* ---- pools ----------------------------------------------------------------------------------- */

static void see_pool(const struct arb *a, const struct arb_pool *p, struct arb_pool_info *ret)
{
	const struct arb_want *closer = arbline_closer(&p->waiting, a->knobs[ARB_KNOB_MAX_BYPASS]);

	*ret = (struct arb_pool_info){
		.id = p->id,
		.capacity = (uint64_t)p->capacity,
		.spill_reserve = (uint64_t)p->spill_reserve,
		.used = (uint64_t)p->used,
		.reclaimable = (uint64_t)p->reclaimable,
		.spilling = (uint64_t)p->wanted,
		.spilled = p->spilled,
		.max_used = p->max_used,
		.n_reservations = p->n_reservations,
		.n_waiting = p->n_waiting,
		.n_rolled = p->n_rolled,
		.closed_by = closer ? closer->context->id : 0,
		.n_grants = p->n_grants,
		.n_waits = p->n_waits,
		.n_retries = p->n_retries,
		.n_splits = p->n_splits,
		.n_toobig = p->n_toobig,
		.n_bypassed = p->n_bypassed,
		.kind = p->kind,
	};
	memcpy(ret->name, p->name, sizeof(ret->name));
}

/* ---- contexts -------------------------------------------------------------------------------- */

static void see_context(const struct arb *a, const struct arb_context *c,
			struct arb_context_info *ret)
{
	const struct arb_want *w = arbcontext_about(c);

	*ret = (struct arb_context_info){
		.id = c->id,
		.state = c->state,
		.kind = c->kind,
		.task = c->bindings->task->id,
		.n_tasks = c->n_tasks,
		.priority = c->rank.priority,
		.since_ns = c->since_ns,
		.deadline_ns = c->deadline.at,
		.n_outcomes = c->outcome_era == a->era ? c->n_outcomes : 0,
		.wait = c->wait,
		.os_blocked = c->os_blocked,
		.in_retry = c->in_retry,
		.in_spill = c->in_spill,
		.reason = arbcontext_parked(c) ? c->reason : NULL,
	};
	if (!w)
		return;
	ret->pool = w->pool->id;
	ret->bytes = c->ask->n ? w->bytes : 0;
	ret->held = arbledger_pinned(c, w->pool);
	ret->need = w->need;
	ret->n_passed = c->line == ARB_LINE_WAITING ? (uint32_t)arbline_passed(w) : 0;
}

/* ---- tasks ----------------------------------------------------------------------------------- */

static void see_task(UNUSED const struct arb *a, const struct arb_task *t,
		     struct arb_task_info *ret)
{
	const struct arb_account *account;

	*ret = (struct arb_task_info){.id = t->id,
				      .priority = t->priority,
				      .begun_ns = t->begun_ns,
				      .n_contexts = t->n_own + t->n_help,
				      .stalled = t->stalled};
	LL_FOREACH(t->accounts, account)
	ret->held += account->stats.current;
	memcpy(ret->name, t->name, sizeof(ret->name));
}

#define EACH(objects, object, list)                                                         \
	void arb_each_##objects(const struct arb *a,                                        \
				bool (*fn)(void *arg, const struct arb_##object##_info *i), \
				void *arg)                                                  \
	{                                                                                   \
		struct arb_##object##_info info;                                            \
                                                                                            \
		for (const struct arb_##object *o = a->list; o; o = o->hh.next) {           \
			see_##object(a, o, &info);                                          \
			if (!fn(arg, &info))                                                \
				return;                                                     \
		}                                                                           \
	}
#define LOOK(object)                                                                         \
	bool arb_##object(const struct arb *a, uint64_t id, struct arb_##object##_info *ret) \
	{                                                                                    \
		const struct arb_##object *o = arb##object##_find(a, id);                    \
                                                                                             \
		if (o)                                                                       \
			see_##object(a, o, ret);                                             \
		return o != NULL;                                                            \
	}                                                                                    \
	EACH(object, object, object##s)

LOOK(pool)
LOOK(context)
LOOK(task)
EACH(ended, task, ended)

/* ---- statistics ------------------------------------------------------------------------------ */

void arbseen_add(struct arb_stats *ret, const struct arb_stats *s)
{
	ret->n_retries += s->n_retries;
	ret->n_splits += s->n_splits;
	ret->n_grants += s->n_grants;
	ret->blocked_ns += s->blocked_ns;
	ret->lost_ns += s->lost_ns;
	ret->blocked_or_lost_ns += s->blocked_or_lost_ns;
	ret->current += s->current;
	ret->max = MAX(ret->max, s->max);
	ret->max_used = MAX(ret->max_used, s->max_used);
	ret->footprint = MAX(ret->footprint, s->footprint);
}

/* Waits in progress, and what the rolled-back attempts need. */
static void add_present(const struct arb_task *t, uint64_t pool, uint64_t now_ns,
			struct arb_stats *ret)
{
	const struct arb_context *c;
	const struct arb_want *w;

	for (const struct arb_binding *b = t->bindings; b; b = b->tnext) {
		c = b->context;
		w = arbcontext_about(c);
		if (!w || w->account->task != t || (pool && w->pool->id != pool))
			continue;
		ret->need = MAX(ret->need, w->need);
		if (arbcontext_parked(c) && now_ns > c->parked_ns)
			ret->blocked_or_lost_ns += now_ns - c->parked_ns;
	}
}

bool arb_stats(struct arb *a, uint64_t task, uint64_t pool, uint64_t now_ns, unsigned flags,
	       struct arb_stats *ret)
{
	struct arb_task *t = arbtask_find(a, task);
	struct arb_account *account;

	if (!t)
		HASH_FIND(hh, a->ended, &task, sizeof(task), t);
	if (!t || (pool && !arbpool_find(a, pool)))
		return false;
	memset(ret, 0, sizeof(*ret));
	LL_FOREACH(t->accounts, account)
	{
		if (pool && account->pool->id != pool)
			continue;
		arbseen_add(ret, &account->stats);
		if (flags & ARB_RESET)
			account->stats = (struct arb_stats){
				.blocked_or_lost_ns = account->stats.blocked_or_lost_ns,
				.current = account->stats.current,
				.max = account->stats.current,
				.footprint = account->active};
	}
	if (!pool)
		arbseen_add(ret, &t->former);
	if (!pool && (flags & ARB_RESET))
		t->former = (struct arb_stats){.blocked_or_lost_ns = t->former.blocked_or_lost_ns};
	add_present(t, pool, now_ns, ret);
	return true;
}

bool arb_reservation(const struct arb *a, uint64_t id, struct arb_reservation_info *ret)
{
	const struct arb_reservation *r = arbreservation_find(a, id);

	if (!r)
		return false;
	*ret = (struct arb_reservation_info){.id = r->id,
					     .pool = r->pool->id,
					     .owner = r->owner->task ? r->owner->task->id : 0,
					     .bytes = r->bytes,
					     .spilled = r->spilled,
					     .sealed = r->sealed,
					     .reclaimable = !r->holder && !r->spill,
					     .spilling = r->job};
	return true;
}

struct arb_hold *arb_hold(const struct arb *a, uint64_t id)
{
	struct arb_reservation *r = arbreservation_find(a, id);

	return r ? &r->hold : NULL;
}

void arb_owned(const struct arb *a, uint64_t task, uint64_t ret[2])
{
	const struct arb_task *t = arbtask_find(a, task);
	const struct arb_account *account;
	const struct arb_reservation *r;

	ret[0] = ret[1] = 0;
	LL_FOREACH(t ? t->accounts : NULL, account)
	DL_FOREACH2(account->owned, r, own_next)
	if (account->pool->kind == ARB_PARTITION && r->hold.item.group)
		ret[r->sealed] += r->bytes;
}

void arb_totals(const struct arb *a, struct arb_totals *ret)
{
	*ret = a->totals;
	ret->n_pools = HASH_COUNT(a->pools);
	ret->n_tasks = HASH_COUNT(a->tasks);
	ret->n_contexts = HASH_COUNT(a->contexts);
	ret->n_parked = a->n_parked;
	ret->down = a->down;
	for (const struct arb_pool *p = a->pools; p; p = p->hh.next)
		ret->n_reservations += p->n_reservations;
}

void arb_log(const struct arb *a, uint64_t since,
	     bool (*fn)(void *arg, const struct arb_transition *t), void *arg)
{
	uint64_t n = a->n_log > ARB_LOG_SIZE ? a->n_log - ARB_LOG_SIZE : 0;

	for (n = n > since ? n : since; n < a->n_log; n++)
		if (!fn(arg, &a->log[n % ARB_LOG_SIZE]))
			return;
}

/* ---- who held what --------------------------------------------------------------------------- */
/*
 * A sentence for whoever is told NOMEM or SPLIT, or waited too long: the largest three holders of
 * the pool among the first few hundred accounts, an explanation and not a decision. It is written
 * into the arbiter, and valid until the next step.
 */
#define N_HOLDERS  3u
#define N_ACCOUNTS 512u /* looked at */

__attribute__((format(printf, 3, 4))) static void say(char *buf, size_t *at, const char *form, ...)
{
	va_list args;
	int n;

	va_start(args, form);
	n = vsnprintf(buf + *at, ARB_WHY_SIZE - *at, form, args);
	va_end(args);
	*at += n > 0 ? (size_t)n : 0;
	if (*at >= ARB_WHY_SIZE)
		*at = ARB_WHY_SIZE - 1;
}

static void enter(const struct arb_account **holders, const struct arb_account *account)
{
	const struct arb_account *swap;

	for (unsigned i = 0; i < N_HOLDERS && account && account->pinned; i++) {
		if (holders[i] && holders[i]->pinned >= account->pinned)
			continue;
		swap = holders[i];
		holders[i] = account;
		account = swap;
	}
}

static void largest(const struct arb_pool *p, const struct arb_account **holders)
{
	const struct arb_account *account;
	unsigned n = 0;

	DL_FOREACH2(p->accounts, account, pnext)
	{
		enter(holders, account);
		if (++n == N_ACCOUNTS)
			return;
	}
}

static const char *sentence(struct arb *a, const struct arb_pool *p, const char *what,
			    uint64_t bytes)
{
	const struct arb_account *holders[N_HOLDERS] = {NULL};
	char *buf = a->why[a->n_why++ % 2];
	size_t at = 0;

	largest(p, holders);
	say(buf, &at, "%s %s of pool %s, which has %s, of which %s are pinned", what,
	    sizetext(bytes).text, p->name, sizetext((uint64_t)arbpool_limit(p)).text,
	    sizetext((uint64_t)arbpool_pinned(p)).text);
	for (unsigned i = 0; i < N_HOLDERS && holders[i]; i++)
		say(buf, &at, "%s task %llu:%u%s%s holds %s", i ? "," : ":",
		    (unsigned long long)holders[i]->task->id >> 32, (uint32_t)holders[i]->task->id,
		    holders[i]->task->name[0] ? " " : "", holders[i]->task->name,
		    sizetext((uint64_t)holders[i]->pinned).text);
	if (p->nobody.pinned)
		say(buf, &at, "%s %s are nobody's", holders[0] ? "," : ":",
		    sizetext((uint64_t)p->nobody.pinned).text);
	return buf;
}

const char *arbseen_why(struct arb *a, const struct arb_ask *ask)
{
	return sentence(a, ask->want->pool, "the attempt needs", ask->want->need);
}

const char *arb_holders(struct arb *a, uint64_t pool, const char *what, uint64_t bytes)
{
	const struct arb_pool *p = arbpool_find(a, pool);

	return p ? sentence(a, p, what, bytes) : NULL;
}

/* The words for the numbers of arbiter.h. */
#define NAME(table, i) \
	((size_t)(i) < sizeof(table) / sizeof(*(table)) && (table)[i] ? (table)[i] : "?")

const char *arb_state_name(enum arb_state s)
{
	static const char *const names[] = {
#define STATE(name) #name,
#include "arbiter.def"
	};

	return s == ARB_UNKNOWN ? "UNKNOWN" : NAME(names, s);
}

const char *arb_outcome_name(enum arb_outcome o)
{
	static const char *const names[] = {
#define OUTCOME(name) #name,
#include "arbiter.def"
	};

	return NAME(names, o);
}

const char *arb_knob_name(enum arb_knob k)
{
	static const char *const names[] = {
#define KNOB(NAME, name, value, least, most) [ARB_KNOB_##NAME] = #name,
#include "arbiter.def"
	};

	return NAME(names, k);
}

const char *arb_op_name(enum arb_op op)
{
	static const char *const names[] = {
#define OP(name, form, call) [ARB_OP_##name] = #name,
#include "arbiter.def"
	};

	return NAME(names, op);
}
