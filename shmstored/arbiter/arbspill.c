/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbspill.c: reclaimable reservations: which goes next, and what is on its way out.
 *
 * Victims are ordered: lowest priority of their owner first, of these the one that was unpinned
 * longest ago. Jobs are started for ALLOC contexts only, as many bytes as they still lack; what
 * nobody waits for any more is called off. Only bytes that really left count: what could not be
 * spilled is refused until it changes, so that nobody is asked for it for ever.
 *
 * A sealed reservation is an object and goes as a whole; of the others (leases, what the disk tier
 * could give) the missing part is enough.
 */
#include "arbcore.h"

static struct arb_reservation *victim_of(const struct arbtree_node *n)
{
	return CONTAINER_OF(n, arb_reservation, node);
}

static int victim_cmp(const struct arbtree_node *x, const struct arbtree_node *y)
{
	const struct arb_reservation *r = victim_of(x), *s = victim_of(y);

	if (r->priority != s->priority)
		return r->priority < s->priority ? -1 : 1;
	return r->used_seq < s->used_seq ? -1 : r->used_seq > s->used_seq;
}

static void victim_pull(UNUSED struct arbtree_node *n)
{
}

static const struct arbtree_ops victim_ops = {.cmp = victim_cmp, .pull = victim_pull};

static void ask(struct arb *a, struct arb_reservation *r, uint64_t bytes)
{
	a->out[a->n_out++] = (struct arb_reply){
		.kind = ARB_REPLY_SPILL, .pool = r->pool->id, .reservation = r->id, .bytes = bytes};
}

void arbspill_end_job(struct arb_reservation *r)
{
	r->pool->wanted -= (int64_t)r->wanted;
	r->wanted = 0;
	r->job = false;
	DL_DELETE2(r->pool->jobs, r, job_prev, job_next);
}

void arbspill_add(struct arb *a, struct arb_reservation *r)
{
	if (r->holder || r->spill || !r->bytes)
		return;
	if (!r->used_seq)
		r->used_seq = ++a->seq;
	a->n_unpinned++;
	arbtree_insert(&r->pool->victims, &r->node, arbtree_heat(++a->tree_seq), &victim_ops);
}

void arbspill_remove(struct arb *a, struct arb_reservation *r)
{
	if (r->job) {
		ask(a, r, 0);
		arbspill_end_job(r);
		a->n_unpinned--;
	} else if (arbtree_in(&r->node)) {
		arbtree_remove(&r->pool->victims, &r->node, &victim_ops);
		a->n_unpinned--;
	}
}

/* Jobs bring more than anybody waits for: the youngest are called off. */
static void call_off(struct arb *a, struct arb_pool *p, int64_t target)
{
	struct arb_reservation *r;

	while (p->jobs && p->wanted > target) {
		r = p->jobs->job_prev;
		if (p->wanted - (int64_t)r->wanted < target)
			return;
		ask(a, r, 0);
		arbspill_end_job(r);
		arbtree_insert(&p->victims, &r->node, arbtree_heat(++a->tree_seq), &victim_ops);
	}
}

/* Bytes that ALLOC contexts still lack; where not all of them fit, the best that do. */
static int64_t lacking(const struct arb_pool *p)
{
	int64_t reach = arbpool_reach(p), sum = p->alloc;
	const struct arb_want *w = NULL;

	if (sum > reach) {
		for (sum = 0; (w = arbline_best_fit(&p->waiting, reach - sum, w, false));)
			sum += w->alloc ? (int64_t)w->bytes : 0;
	}
	return sum ? MAX(sum - arbpool_free(p), 0) : 0;
}

void arbspill_balance(struct arb *a, struct arb_pool *p)
{
	int64_t target = lacking(p), missing;
	struct arbtree_node *first;
	struct arb_reservation *r;

	call_off(a, p, target);
	while (p->wanted < target) {
		first = arbtree_end(&p->victims, 0);
		if (!first)
			return;
		r = victim_of(first);
		missing = target - p->wanted;
		arbtree_remove(&p->victims, &r->node, &victim_ops);
		r->job = true;
		r->wanted = r->sealed || (int64_t)r->bytes < missing ? r->bytes : (uint64_t)missing;
		p->wanted += (int64_t)r->wanted;
		DL_APPEND2(p->jobs, r, job_prev, job_next);
		ask(a, r, r->wanted);
	}
}
