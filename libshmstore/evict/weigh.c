/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weigh.c: candidates as the policy sees them.
 *
 * A store's fair share is the partition divided by the number of stores that hold anything. An object of several stores has the weight of the
 * lightest of them: a hog that links what a modest neighbour works with does not make it a better victim. It shrinks as its stores' other
 * objects did, the least of them; where nothing is known yet it is taken not to shrink.
 */
#include "weigh.h"

#include <errno.h>
#include <stdlib.h>

/* Where all names of an object are in one store: that one. */
static const struct shms_candidate_store *only_store(const struct shms_candidates *c, const struct shms_candidate *o)
{
	const struct shms_candidate_name *first = &c->names[o->first - 1];

	for (uint32_t at = first->next; at; at = c->names[at - 1].next) {
		if (c->names[at - 1].store != first->store)
			return NULL;
	}
	return &c->stores[first->store];
}

static bool complete(const struct shms_candidate *o)
{
	return o->n_names && o->n_names + o->n_residents == o->n_links;
}

/* The walk did not count objects with several names in one store as that store's own. */
static void count_uss(struct shms_candidates *c)
{
	for (size_t i = 0; i < c->n; i++) {
		const struct shms_candidate_store *store;

		if (!complete(&c->v[i]) || c->v[i].n_links == 1)
			continue;
		store = only_store(c, &c->v[i]);
		if (store)
			c->stores[store - c->stores].uss += c->v[i].bytes;
	}
}

static uint32_t ratio(const struct shms_candidate_store *s)
{
	if (!s->original || s->stored >= s->original)
		return SHMS_VICTIM_ONE;
	return (uint32_t)(s->stored * SHMS_VICTIM_ONE / s->original);
}

static uint64_t since(int64_t now_ns, int64_t then_ns)
{
	return now_ns > then_ns ? (uint64_t)(now_ns - then_ns) : 0;
}

struct weighing {
	const struct shms_candidates *c;
	uint64_t share;
	int64_t now_ns;
};

static struct shms_victim victim(const struct weighing *w, size_t i)
{
	const struct shms_candidate *o = &w->c->v[i];
	struct shms_victim v = {
		.id = i,
		.bytes = o->bytes,
		.age_ns = since(w->now_ns, o->used_ns),
		.n_names = o->n_names,
		.weight = UINT32_MAX,
		.clean = o->n_clean > 0,
	};

	for (uint32_t at = o->first; at; at = w->c->names[at - 1].next) {
		const struct shms_candidate_store *s = &w->c->stores[w->c->names[at - 1].store];
		uint32_t weight =
			shms_victim_weight(&(struct shms_victim_store){s->uss, w->share, since(w->now_ns, s->used_ns)});

		if (weight < v.weight)
			v.weight = weight;
		if (ratio(s) > v.ratio)
			v.ratio = ratio(s);
		v.near = v.near || s->own;
	}
	return v;
}

int shms_weigh(struct shms_candidates *c, uint64_t size, int64_t now_ns, struct shms_victim **ret, size_t *ret_n)
{
	struct weighing w = {.c = c, .now_ns = now_ns};
	uint64_t n_stores = 0;
	size_t n = 0;
	struct shms_victim *v = calloc(c->n + 1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	count_uss(c);
	for (size_t i = 0; i < c->n_stores; i++)
		n_stores += c->stores[i].uss > 0;
	w.share = n_stores ? size / n_stores : 0;
	for (size_t i = 0; i < c->n; i++) {
		if (complete(&c->v[i]) && !c->v[i].pinned)
			v[n++] = victim(&w, i);
	}
	*ret = v;
	*ret_n = n;
	return 0;
}
