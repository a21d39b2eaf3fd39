/* SPDX-License-Identifier: Apache-2.0 */
/* arbfit.c: whether a request fits into its pools now, and whether one above it closed them. */
#include "arbcore.h"

enum arb_fit arbfit_ask(const struct arb_ask *ask)
{
	enum arb_fit fit = ARB_FIT_FREE;

	ARB_EACH_WANT(w, ask) {
		if ((int64_t)w->bytes <= arbpool_free(w->pool))
			continue;
		if (!w->bytes)
			continue;
		if ((int64_t)w->bytes > arbpool_reach(w->pool))
			return ARB_FIT_NOT;
		fit = ARB_FIT_SPILL;
	}
	return fit;
}

bool arbfit_closed(const struct arb *a, struct arb_pool *p, const struct arb_rank *rank)
{
	if (!p->n_waiting)
		return false;
	if (!p->closer_known) {
		p->closer = arbline_closer(&p->waiting, a->knobs[ARB_KNOB_MAX_BYPASS]);
		p->closer_known = true;
	}
	return p->closer && arb_rank_cmp(&p->closer->rank, rank) < 0;
}

bool arbfit_ask_closed(const struct arb *a, const struct arb_context *c, const struct arb_ask *ask)
{
	if (c == a->past)
		return false;
	ARB_EACH_WANT(w, ask)
		if (w->bytes && arbfit_closed(a, w->pool, &c->rank))
			return true;
	return false;
}

void arbfit_passes(struct arb_pool *p, const struct arb_rank *rank)
{
	if (!p->n_waiting || !arbline_pass(&p->waiting, rank))
		return;
	p->n_bypassed++;
	p->closer_known = false;
}

bool arbfit_attempt(const struct arb_context *c)
{
	ARB_EACH_WANT(w, c->attempt)
		if (w->weight > arbpool_room(w->pool))
			return false;
	return true;
}
