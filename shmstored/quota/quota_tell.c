/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quota_tell.c: levels, who is asked to give back how much, and the calls back to the caller.
 *
 * Over soft until below low (so that it does not flutter), and where requests were refused or wait
 * at hard, the excess is shared out: pooled files first, of the largest pool first: they hold
 * nothing that anybody needs; then objects, of the largest store first, up to half of what it has.
 * A store that several limits cover is asked for the most that one of them wants of it. Nobody is
 * asked again for what it was asked and is still about to give.
 */
#include <sys/param.h>

#include "quota_core.h"

#define ASK_MOST 16 /* stores that one limit asks at a time, for pools and for objects */

/* The bytes of pools, or of objects, that s may be asked for. */
static uint64_t offer_of(const struct quota_store *s, bool objects)
{
	return objects ? s->share.linked / 2 : s->share.pool;
}

/* Asks for excess of them, of the largest first. Returns what is still missing. */
static uint64_t share_out(struct quota_group *g, uint64_t excess, bool objects)
{
	for (int i = 0; excess && i < ASK_MOST; i++) {
		struct quota_store *largest = NULL;
		uint64_t part;

		QUOTA_EACH(s, g) {
			if (!s->part[objects] && offer_of(s, objects) &&
			    (!largest || offer_of(s, objects) > offer_of(largest, objects)))
				largest = s;
		}
		if (!largest)
			break;
		part = MIN(offer_of(largest, objects), excess);
		largest->part[objects] = part;
		excess -= part;
	}
	return excess;
}

static void ask_for(struct quota_group *g, uint64_t excess)
{
	QUOTA_EACH(s, g)
		s->part[false] = s->part[true] = 0;
	excess = share_out(g, excess, false);
	share_out(g, excess, true);
	QUOTA_EACH(s, g)
		s->want = MAX(s->want, s->part[false] + s->part[true]);
}

static void look(struct quota *q, struct quota_group *g, bool tick)
{
	uint64_t used = g->soft ? quota_group_used(q, g) : 0, excess;
	int level = g->n_refused != g->n_refused_seen || g->n_holding ? 2 : 0;
	bool soft = g->soft && (used > g->soft || (g->asking && used > g->low));

	g->asking = soft;
	excess = level ? g->deficit : 0;
	if (!level && soft)
		level = 1;
	if (soft && used - g->low > excess)
		excess = used - g->low;
	if (excess)
		ask_for(g, excess);
	if (!tick)
		return;
	quota_group_level(q, g, level);
	g->n_refused_seen = g->n_refused;
	g->deficit = 0;
}

/* Is it worth a word that s is to give want now, and not what it was asked for, less what it
 * gave? */
static bool news(const struct quota_store *s)
{
	uint64_t given =
		atomic_load_explicit(&s->credit->given_bytes, memory_order_relaxed) - s->given_seen;
	uint64_t left = given < s->asked ? s->asked - given : 0;

	if (!s->want || !left)
		return s->want != s->asked;
	return s->want > left + left / 8 || s->want < left - left / 8;
}

void quota_ask_walk(struct quota *q, bool tick)
{
	struct quota_group *g, *next;

	QUOTA_EACH(s, q->partition) {
		s->want = 0;
		q->ops.share(q->ops.arg, s, &s->share);
	}
	HASH_ITER(hh, q->groups, g, next)
	{
		look(q, g, tick);
		quota_group_drop(q, g);
	}
	QUOTA_EACH(s, q->partition) {
		if (!s->credit || s->liar || !news(s))
			continue;
		s->asked = s->want;
		s->given_seen = atomic_load_explicit(&s->credit->given_bytes, memory_order_relaxed);
		s->ask = true;
		q->tell_stores = true;
	}
}

/* ---- telling --------------------------------------------------------------------------------- */

const char *quota_kind_name(enum wire_limit kind)
{
	static const char *const names[] = {"none", "partition", "user", "label", "store"};

	return names[kind];
}

static bool tell_wait(struct quota *q)
{
	struct quota_wait *w = q->done;
	struct quota_answer a;
	uint64_t serial;

	if (!w)
		return false;
	a = w->answer;
	serial = w->want.serial;
	quota_queue_forget(q, w);
	q->ops.answer(q->ops.arg, w->store, serial, w->error, &a);
	return true;
}

static bool tell_level(struct quota *q)
{
	if (!q->tell_levels)
		return false;
	for (struct quota_group *g = q->groups; g; g = g->hh.next) {
		struct quota_line line;

		if (g->level == g->level_told)
			continue;
		g->level_told = g->level;
		quota_group_line(q, g, &line);
		q->ops.level(q->ops.arg, &line);
		return true; /* the callback may have changed the list */
	}
	q->tell_levels = false;
	return false;
}

static bool tell_store(struct quota *q)
{
	if (!q->tell_stores)
		return false;
	QUOTA_EACH(s, q->partition) {
		if (s->liar && !s->liar_told) {
			s->liar_told = true;
			q->ops.liar(q->ops.arg, s, s->lie);
			return true;
		}
		if (s->ask) {
			s->ask = false;
			q->ops.ask(q->ops.arg, s, s->asked);
			return true;
		}
	}
	q->tell_stores = false;
	return false;
}

void quota_tell(struct quota *q)
{
	if (q->telling)
		return;
	q->telling = true;
	while (tell_wait(q) || tell_level(q) || tell_store(q))
		continue;
	q->telling = false;
}
