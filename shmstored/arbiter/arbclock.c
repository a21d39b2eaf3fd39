/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbclock.c: deadlines and ticks.
 *
 * Deadlines of withheld calls are in a binary heap, whose array grows with the contexts. A tick is silent if since the one before no client
 * said anything and nothing changed its state; what may only be stalled counts after some of them.
 */
#include "arbcore.h"

int arbclock_room(struct arb *a)
{
	size_t need = HASH_COUNT(a->contexts) + 2, size = a->heap_size ? 2 * a->heap_size : 64;
	struct arb_context **heap;

	if (need <= a->heap_size)
		return 0;
	heap = reallocarray(a->heap, size, sizeof(struct arb_context *));
	if (!heap)
		return -ENOMEM;
	a->heap = heap;
	a->heap_size = size;
	return 0;
}

static void put(struct arb *a, size_t at, struct arb_context *c)
{
	a->heap[at] = c;
	c->heap_at = at;
}

/* c goes where it belongs, from at, which is free. */
static void sift(struct arb *a, size_t at, struct arb_context *c)
{
	size_t kid;

	for (; at > 1 && a->heap[at / 2]->deadline_ns > c->deadline_ns; at /= 2)
		put(a, at, a->heap[at / 2]);
	for (; (kid = 2 * at) <= a->n_heap; at = kid) {
		if (kid < a->n_heap && a->heap[kid + 1]->deadline_ns < a->heap[kid]->deadline_ns)
			kid++;
		if (a->heap[kid]->deadline_ns >= c->deadline_ns)
			break;
		put(a, at, a->heap[kid]);
	}
	put(a, at, c);
}

void arbclock_set(struct arb *a, struct arb_context *c, uint64_t deadline_ns)
{
	size_t at = c->heap_at;
	struct arb_context *last;

	if (at) { /* the last takes its place */
		last = a->heap[a->n_heap--];
		c->heap_at = 0;
		if (last != c)
			sift(a, at, last);
	}
	c->deadline_ns = deadline_ns;
	if (deadline_ns)
		sift(a, ++a->n_heap, c);
}

bool arbclock_expire(struct arb *a)
{
	bool any = false;

	while (a->n_heap && a->heap[1]->deadline_ns <= a->now_ns) {
		arbpark_cancel(a, a->heap[1], ARB_TIMEDOUT);
		any = true;
	}
	return any;
}

void arbclock_tick(struct arb *a)
{
	a->silent++;
	a->look = true;
}
