/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbstuck.c: requests of stalled tasks in a pool, smallest first: is there
 * a set that can never be met?
 *
 * Tasks that are not stalled may give back all that they hold. That meets the smallest request
 * of the stalled ones, whose task then gives back what it holds (gain), which meets the next.
 * The set that is left over when this stops is hopeless: its first is the first request that is
 * larger than what comes back before it. With the sum of the gains and the largest (bytes -
 * gains before) below each node that is one walk down from the root, and the lowest holder among
 * the rest falls out on the way.
 *
 * While even the largest request fits into what those who run give back, no set is hopeless, and
 * nothing is kept: the tree is built when it is needed first, and dropped when it was not needed
 * as often as there are waiters.
 *
 * A request of some bytes belongs here while it is BLOCKED and the task to which it is to be
 * booked is stalled. A task with several such requests is revived by the smallest of them (lead),
 * so that its bytes count once; any of them may be rolled back to have them. Bytes that several
 * tasks pin are in the books of one of them: a set may be found later for it, not wrongly. A
 * helper's request revives the best of its tasks only: for the others a set may be found too
 * soon, which costs one roll back.
 */
#include "arbcore.h"

static struct arb_want *want_of(const struct arbtree_node *n)
{
	return CONTAINER_OF(n, arb_want, stuck);
}

static struct arb_want *want_or_null(const struct arbtree_node *n)
{
	return n ? want_of(n) : NULL;
}

static int want_cmp(const struct arb_want *x, const struct arb_want *y)
{
	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? -1 : 1;
	return arb_rank_cmp(&x->rank, &y->rank);
}

static int stuck_cmp(const struct arbtree_node *x, const struct arbtree_node *y)
{
	return want_cmp(want_of(x), want_of(y));
}

static struct arb_want *lower(struct arb_want *x, struct arb_want *y)
{
	if (!x || !y)
		return x ? x : y;
	return arb_rank_cmp(&x->rank, &y->rank) > 0 ? x : y;
}

static void stuck_pull(struct arbtree_node *n)
{
	struct arb_want *w = want_of(n), *left = want_or_null(n->kid[0]),
			*right = want_or_null(n->kid[1]);
	uint64_t before = left ? left->sum_gain : 0;

	w->sum_gain = before + w->gain + (right ? right->sum_gain : 0);
	w->peak = (int64_t)w->bytes - (int64_t)before;
	w->worst = w->holds ? w : NULL;
	if (left) {
		w->peak = MAX(w->peak, left->peak);
		w->worst = lower(w->worst, left->worst);
	}
	if (right) {
		w->peak = MAX(w->peak, right->peak - (int64_t)(before + w->gain));
		w->worst = lower(w->worst, right->worst);
	}
}

static const struct arbtree_ops stuck_ops = {.cmp = stuck_cmp, .pull = stuck_pull};

void arbstuck_drop(struct arb_want *w)
{
	if (arbtree_in(&w->stuck))
		arbtree_remove(&w->pool->stuck, &w->stuck, &stuck_ops);
	w->gain = 0;
}

/* Chooses for each pool the task's request that would revive it. */
static void choose_leads(struct arb_task *t)
{
	struct arb_account *account;

	for (account = t->accounts; account; account = account->next)
		account->lead = NULL;
	if (!t->stalled)
		return;
	for (struct arb_binding *b = t->bindings; b; b = b->tnext) {
		if (b->context->state != ARB_BLOCKED || b->context->line != ARB_LINE_WAITING)
			continue;
		ARB_EACH_WANT(w, b->context->ask)
			if (w->account->task == t && w->bytes &&
			    (!w->account->lead || want_cmp(w, w->account->lead) < 0))
				w->account->lead = w;
	}
}

static void place(struct arb *a, struct arb_want *w, bool member)
{
	uint64_t gain = member && w->account->lead == w ? w->account->pinned : 0;
	bool holds = w->account->pinned > 0;

	if (!member || !w->pool->searched) {
		arbstuck_drop(w);
	} else if (!arbtree_in(&w->stuck)) {
		w->gain = gain;
		w->holds = holds;
		arbtree_insert(&w->pool->stuck, &w->stuck, arbtree_heat(++a->tree_seq), &stuck_ops);
	} else if (w->gain != gain || w->holds != holds) {
		w->gain = gain;
		w->holds = holds;
		arbtree_touch(&w->stuck, &stuck_ops);
	}
}

void arbstuck_refresh(struct arb *a, struct arb_task *t)
{
	if (!a->n_searched)
		return;
	choose_leads(t);
	for (struct arb_binding *b = t->bindings; b; b = b->tnext) {
		if (b->context->line != ARB_LINE_WAITING)
			continue;
		ARB_EACH_WANT(w, b->context->ask)
			if (w->account->task == t)
				place(a, w,
				      w->bytes && t->stalled && b->context->state == ARB_BLOCKED);
	}
}

/* Of two or more in the set the lowest that holds something. */
static struct arb_want *victim(const struct arb_pool *p, int64_t room)
{
	struct arbtree_node *n = p->stuck.root;
	struct arb_want *w, *left, *right, *worst = NULL;
	int64_t before;
	unsigned n_set = 0;

	if (!n || want_of(n)->peak <= room)
		return NULL;
	while (n) {
		w = want_of(n);
		left = want_or_null(n->kid[0]);
		right = want_or_null(n->kid[1]);
		before = left ? (int64_t)left->sum_gain : 0;
		if ((left && left->peak > room) || (int64_t)w->bytes - before > room) {
			/* w and all that are larger are in the set */
			worst = lower(worst, w->holds ? w : NULL);
			worst = lower(worst, right ? right->worst : NULL);
			n_set += 1u + (right != NULL);
			n = left && left->peak > room ? n->kid[0] : NULL;
			continue;
		}
		room += before + (int64_t)w->gain;
		n = n->kid[1];
	}
	return n_set >= 2 ? worst : NULL;
}

static void begin_search(struct arb *a, struct arb_pool *p)
{
	p->searched = true;
	a->n_searched++;
	for (struct arb_want *w = arbline_best(&p->waiting); w; w = arbline_next(w))
		arbstuck_refresh(a, w->account->task);
}

static void end_search(struct arb *a, struct arb_pool *p)
{
	p->searched = false;
	p->n_calm = 0;
	a->n_searched--;
	for (struct arb_want *w = arbline_best(&p->waiting); w; w = arbline_next(w))
		arbstuck_drop(w);
}

struct arb_want *arbstuck_victim(struct arb *a, struct arb_pool *p)
{
	int64_t room = arbpool_limit(p) - p->stuck_bytes;

	if (arbline_most(&p->waiting) > room) {
		p->n_calm = 0;
		if (!p->searched)
			begin_search(a, p);
		return victim(p, room);
	}
	if (p->searched && ++p->n_calm > p->n_waiting)
		end_search(a, p);
	return NULL;
}
