/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stageprofile.c: the rules. Amounts are at most STAGE_MIB_MAX; what a ratio would make of them beyond that counts as so much, before the cap is
 * looked at, so that no sum overflows.
 */
#include "stageprofile.h"

/* The share of the shared memory that a stage keeps whatever its private memory wants. */
#define FLOOR_DIV 10

const struct stage_config stage_defaults = {
	.mode = STAGE_HOST,
	.enabled = false,
	.shared_enabled = true,
	.private_ratio = {2, 1},
	.shared_ratio = {1, 2},
	.fallen_threshold = {1, 2},
	.whole_shared_div = 10,
	.wait_ms = 2000,
};

bool stage_config_fits(const struct stage_config *c)
{
	return c->whole_shared_div > 0 && c->cap_mib >= 0 && c->cap_mib <= STAGE_MIB_MAX && c->wait_ms >= 0 &&
	       c->private_ratio.den && c->shared_ratio.den && c->fallen_threshold.den;
}

bool stage_amounts_fit(const struct stage_amounts *a)
{
	return a->private_mib >= 0 && a->private_mib <= STAGE_MIB_MAX && a->shared_mib >= 0 &&
	       a->shared_mib <= STAGE_MIB_MAX && a->slots >= 1 && a->slots <= STAGE_SLOTS_MAX;
}

bool stage_ask_fits(const struct stage_ask *ask)
{
	return ask->n_native >= 0 && ask->n_native <= STAGE_NODES_MAX && ask->n_convert >= 0 &&
	       ask->n_convert <= STAGE_NODES_MAX && ask->n_other >= 0 && ask->n_other <= STAGE_NODES_MAX &&
	       ask->want_slots >= 0 && (!ask->has_nonshare || ask->nonshare.den);
}

bool stage_amounts_equal(const struct stage_amounts *a, const struct stage_amounts *b)
{
	return a->private_mib == b->private_mib && a->shared_mib == b->shared_mib && a->slots == b->slots;
}

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t times(int64_t mib, struct ratio r)
{
	return smaller(ratio_floor(r, mib), STAGE_MIB_MAX);
}

/* part/all, of counts. */
static bool reaches(int64_t part, int64_t all, struct ratio threshold)
{
	return all > 0 && ratio_compare(RATIO((uint64_t)part, (uint64_t)all), threshold) >= 0;
}

/* Returns the rule of the fallback, whole or partial; 0: none. */
static unsigned fallen(const struct stage_config *c, const struct stage_ask *ask)
{
	int64_t all = ask->n_native + ask->n_convert + ask->n_other;
	bool nonshare = ask->has_nonshare && c->mode == STAGE_HOST;

	switch (ask->fallback) {
	case STAGE_FALLBACK_NONE:
		return 0;
	case STAGE_FALLBACK_PARTIAL:
		return STAGE_RULE_PARTIAL;
	case STAGE_FALLBACK_WHOLE:
		return STAGE_RULE_WHOLE;
	case STAGE_FALLBACK_FOUND:
		break;
	}
	/* Nothing is known of the operators, which is not that none is native. */
	if (all && !ask->n_native)
		return STAGE_RULE_WHOLE;
	if (!all && nonshare && ratio_compare(ask->nonshare, RATIO(1, 1)) >= 0)
		return STAGE_RULE_WHOLE;
	if (reaches(ask->n_other, all, c->fallen_threshold) ||
	    (nonshare && ratio_compare(ask->nonshare, c->fallen_threshold) >= 0))
		return STAGE_RULE_PARTIAL;
	return 0;
}

/* private + shared within the cap: shared gives first, down to its floor, then private, and slots with it. */
static bool clamp(struct stage_amounts *a, int64_t floor, int64_t cap)
{
	int64_t wanted = a->private_mib;

	if (a->private_mib + a->shared_mib <= cap)
		return false;
	floor = smaller(floor, a->shared_mib);
	a->shared_mib = smaller(a->shared_mib, larger(floor, cap - a->private_mib));
	if (a->private_mib + a->shared_mib <= cap)
		return false;
	/* Here shared is floor. A cap below that leaves nothing private. */
	a->private_mib = larger(cap - floor, 0);
	a->shared_mib = cap - a->private_mib;
	if (wanted)
		a->slots = larger(1, ratio_floor(RATIO((uint64_t)a->private_mib, (uint64_t)wanted), a->slots));
	return true;
}

static void apply_fallen(const struct stage_config *c, const struct stage_amounts *base, struct stage_reply *r)
{
	if (r->rules & STAGE_RULE_WHOLE)
		r->amounts.shared_mib = base->shared_mib / c->whole_shared_div;
	else if (r->rules & STAGE_RULE_PARTIAL)
		r->amounts.shared_mib = times(base->shared_mib, c->shared_ratio);
	if (r->rules)
		r->amounts.private_mib = times(base->private_mib, c->private_ratio);
}

struct stage_reply stage_evaluate(const struct stage_config *config, const struct stage_amounts *base,
				  const struct stage_ask *ask)
{
	struct stage_reply r = {.amounts = *base};
	int64_t cap = config->cap_mib ? config->cap_mib : base->private_mib + base->shared_mib;

	if (!config->enabled || !config->shared_enabled)
		return r;
	if (config->mode == STAGE_FIRST && ask->root == STAGE_FINAL)
		return r;
	r.rules = fallen(config, ask);
	apply_fallen(config, base, &r);
	if (config->mode == STAGE_FIRST)
		return r;
	if (ask->want_slots > 0)
		r.amounts.slots = smaller(base->slots, ask->want_slots);
	if (r.rules)
		r.clamped = clamp(&r.amounts, base->shared_mib / FLOOR_DIV, cap);
	return r;
}

bool stage_merge(const struct stage_amounts *a, const struct stage_amounts *b, enum stage_conflict conflict,
		 int64_t cap_mib, struct stage_amounts *ret)
{
	struct stage_amounts most = {
		.private_mib = larger(a->private_mib, b->private_mib),
		.shared_mib = larger(a->shared_mib, b->shared_mib),
		.slots = larger(a->slots, b->slots),
	};

	if (conflict == STAGE_CONFLICT_ERROR && !stage_amounts_equal(a, b))
		return false;
	if (conflict == STAGE_CONFLICT_HOST) {
		if (!cap_mib)
			cap_mib = larger(a->private_mib + a->shared_mib, b->private_mib + b->shared_mib);
		most.slots = smaller(a->slots, b->slots);
		(void)clamp(&most, most.shared_mib / FLOOR_DIV, cap_mib);
	}
	*ret = most;
	return true;
}
