/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quota_ask.c: levels, and who is asked to give back how much.
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

static struct quota_store *largest_pool(const struct quota_group *g)
{
	struct quota_store *found = NULL;

	QUOTA_EACH(s, g) {
		if (!s->part_pool && s->share.pool && (!found || s->share.pool > found->share.pool))
			found = s;
	}
	return found;
}

static struct quota_store *largest_linked(const struct quota_group *g)
{
	struct quota_store *found = NULL;

	QUOTA_EACH(s, g) {
		if (!s->part_linked && s->share.linked >= 2 &&
		    (!found || s->share.linked > found->share.linked))
			found = s;
	}
	return found;
}

static void share_out(struct quota_group *g, uint64_t excess)
{
	struct quota_store *s;

	QUOTA_EACH(t, g) {
		t->part_pool = 0;
		t->part_linked = 0;
	}
	for (int i = 0; excess && i < ASK_MOST && (s = largest_pool(g)) != NULL; i++) {
		s->part_pool = MIN(s->share.pool, excess);
		excess -= s->part_pool;
	}
	for (int i = 0; excess && i < ASK_MOST && (s = largest_linked(g)) != NULL; i++) {
		s->part_linked = MIN(s->share.linked / 2, excess);
		excess -= s->part_linked;
	}
	QUOTA_EACH(t, g) {
		if (t->part_pool + t->part_linked > t->want)
			t->want = t->part_pool + t->part_linked;
	}
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
		share_out(g, excess);
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
