/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deadlines.h: which of many deadlines comes first? A pairing heap: its nodes stand in the
 * structures that wait, so that nothing is allocated. Adding takes constant time, removing any of n
 * nodes O(log n), both on average over all calls. Pure.
 */
#ifndef DEADLINES_H
#define DEADLINES_H

#include <stddef.h>
#include <stdint.h>

struct deadline {
	uint64_t at;
	struct deadline *child, *next, *prev; /* prev of a first child: its parent */
};

/* Makes one heap of two; of equal deadlines the first one's comes first. */
static inline struct deadline *deadline_meld(struct deadline *a, struct deadline *b)
{
	struct deadline *top = b && (!a || b->at < a->at) ? b : a, *below = top == a ? b : a;

	if (!below)
		return top;
	below->prev = top;
	below->next = top->child;
	if (below->next)
		below->next->prev = below;
	top->child = below;
	return top;
}

/* Makes one heap of siblings: of pairs first, so that the next removal finds half as many. */
static inline struct deadline *deadline_join(struct deadline *first)
{
	struct deadline *pairs = NULL, *all = NULL, *a;

	while ((a = first)) {
		struct deadline *b = a->next;

		first = b ? b->next : NULL;
		a = deadline_meld(a, b);
		a->next = pairs;
		pairs = a;
	}
	while ((a = pairs)) {
		pairs = a->next;
		all = deadline_meld(a, all);
	}
	if (all)
		all->next = all->prev = NULL;
	return all;
}

/* heap: the first deadline; NULL: there is none. */
static inline void deadline_add(struct deadline **heap, struct deadline *d, uint64_t at)
{
	*d = (struct deadline){.at = at};
	*heap = deadline_meld(*heap, d);
}

/* d is in the heap. */
static inline void deadline_remove(struct deadline **heap, struct deadline *d)
{
	struct deadline *children = deadline_join(d->child);

	if (*heap == d) {
		*heap = children;
		return;
	}
	*(d->prev->child == d ? &d->prev->child : &d->prev->next) = d->next;
	if (d->next)
		d->next->prev = d->prev;
	*heap = deadline_meld(*heap, children);
}

#endif
