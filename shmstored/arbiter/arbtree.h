/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbtree.h: an ordered set whose nodes carry sums of what is below them: a treap,
 * intrusive, with parent links.
 *
 * The arbiter asks "the best waiter that fits", "the first request that can never fit":
 * binary search over sums, which neither glibc's tsearch() nor a list of uthash can do.
 * Everything is inline, so that the operations of each of the three users are compiled into
 * it; each has its own ops, constant. No memory is taken here. Equal keys do not happen: cmp
 * ends with a number that nothing else has.
 *
 *   cmp    < 0: the first comes first
 *   pull   compute a node's sums from its own values and its kids
 *   push   hand what was noted for the whole subtree down to the kids; NULL = nothing is ever noted
 *
 * heat keeps it balanced: larger is nearer to the root. It is mixed from a counter: the same
 * messages make the same tree.
 */
#ifndef ARBTREE_H
#define ARBTREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arbtree_node {
	struct arbtree_node *kid[2], *up;
	uint32_t heat; /* 0 = in no tree */
};

struct arbtree {
	struct arbtree_node *root;
};

struct arbtree_ops {
	int (*cmp)(const struct arbtree_node *a, const struct arbtree_node *b);
	void (*pull)(struct arbtree_node *n);
	void (*push)(struct arbtree_node *n);
};

static inline bool arbtree_in(const struct arbtree_node *n)
{
	return n->heat != 0;
}

static inline uint32_t arbtree_heat(uint64_t seed)
{
	seed = (seed ^ (seed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	seed = (seed ^ (seed >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)(seed >> 32) | 1u;
}

/* n goes above its parent. Both were pushed. Sums: the parent's only, n's are pulled by who
 * calls. */
static inline void arbtree_rise(struct arbtree *t, struct arbtree_node *n,
				const struct arbtree_ops *ops)
{
	struct arbtree_node *p = n->up, *g = p->up;
	int side = p->kid[1] == n;
	struct arbtree_node *inner = n->kid[!side];

	p->kid[side] = inner;
	if (inner)
		inner->up = p;
	n->kid[!side] = p;
	p->up = n;
	n->up = g;
	if (!g)
		t->root = n;
	else
		g->kid[g->kid[1] == p] = n;
	ops->pull(p);
}

/* n's values have changed, its place has not. */
static inline void arbtree_touch(struct arbtree_node *n, const struct arbtree_ops *ops)
{
	for (; n; n = n->up)
		ops->pull(n);
}

static inline void arbtree_insert(struct arbtree *t, struct arbtree_node *n, uint32_t heat,
				  const struct arbtree_ops *ops)
{
	struct arbtree_node *p = NULL, **at = &t->root;

	while (*at) {
		p = *at;
		if (ops->push)
			ops->push(p);
		at = &p->kid[ops->cmp(n, p) > 0];
	}
	n->kid[0] = n->kid[1] = NULL;
	n->up = p;
	n->heat = heat;
	*at = n;
	while (n->up && n->up->heat < n->heat)
		arbtree_rise(t, n, ops);
	arbtree_touch(n, ops);
}

/* Pushes the pending changes on the path from the root down to n. */
static inline void arbtree_settle(struct arbtree_node *n, const struct arbtree_ops *ops)
{
	/* a treap of 2^32 is deeper than this with less than 2^-60 */
	struct arbtree_node *path[128];
	size_t depth = 0;

	for (; n && depth < 128; n = n->up)
		path[depth++] = n;
	while (depth)
		ops->push(path[--depth]);
}

static inline void arbtree_remove(struct arbtree *t, struct arbtree_node *n,
				  const struct arbtree_ops *ops)
{
	struct arbtree_node *kid, *p;

	if (ops->push)
		arbtree_settle(n, ops);
	while (n->kid[0] && n->kid[1]) {
		kid = n->kid[n->kid[1]->heat > n->kid[0]->heat];
		if (ops->push)
			ops->push(kid);
		arbtree_rise(t, kid, ops);
	}
	kid = n->kid[0] ? n->kid[0] : n->kid[1];
	p = n->up;
	if (kid)
		kid->up = p;
	if (!p)
		t->root = kid;
	else
		p->kid[p->kid[1] == n] = kid;
	n->heat = 0;
	n->kid[0] = n->kid[1] = n->up = NULL;
	arbtree_touch(p, ops);
}

static inline struct arbtree_node *arbtree_end(const struct arbtree *t, int side)
{
	struct arbtree_node *n = t->root;

	while (n && n->kid[side])
		n = n->kid[side];
	return n;
}

/* side 1: the next, 0: the one before. */
static inline struct arbtree_node *arbtree_step(const struct arbtree_node *n, int side)
{
	struct arbtree_node *k = n->kid[side];

	if (k) {
		while (k->kid[!side])
			k = k->kid[!side];
		return k;
	}
	while (n->up && n->up->kid[side] == n)
		n = n->up;
	return n->up;
}

#endif
