/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_stage.c: random stages and sessions. $SHMSTORE_SEED plays one history.
 *
 *     mode HOST: private + shared are within the cap wherever a rule applies; what is clamped says
 *     so; there is a slot an evaluation says the same again, whatever was evaluated in between
 *     equal amounts have one id, and an id means the same amounts for ever what sessions hold is
 *     never more than the total; who waits is served when its time is over; after its stage a
 *     session has the base, or what was left of the total, and says so
 */
#include <criterion/criterion.h>
#include <errno.h>

#include "dice.h"
#include "stagebook.h"
#include "stagefits.h"

#define HISTORIES 400u
#define STEPS     100u
#define SESSIONS  5u

static struct stage_config some_config(struct dice *d)
{
	struct stage_config c = stage_defaults;

	c.enabled = dice_draw(d, 10) != 0;
	c.mode = dice_draw(d, 3) ? STAGE_HOST : STAGE_FIRST;
	c.private_ratio = RATIO(dice_draw(d, 50), 10);
	c.shared_ratio = RATIO(dice_draw(d, 20), 10);
	c.fallen_threshold = RATIO(dice_draw(d, 11), 10);
	c.cap_mib = dice_draw(d, 2) ? 0 : (int64_t)(1 + dice_draw(d, 3000));
	c.whole_shared_div = (int64_t)(1 + dice_draw(d, 20));
	return c;
}

static struct stage_amounts some_amounts(struct dice *d)
{
	return (struct stage_amounts){.private_mib = (int64_t)dice_draw(d, 2000),
				      .shared_mib = (int64_t)dice_draw(d, 2000),
				      .slots = (int64_t)(1 + dice_draw(d, 8))};
}

static struct stage_reply evaluate(struct dice *d, const struct stage_config *c,
				   const struct stage_amounts *base)
{
	struct stage_ask ask = {0};
	struct stage_reply r, other, again;
	int64_t cap = c->cap_mib ? c->cap_mib : base->private_mib + base->shared_mib;

	ask.n_native = (int64_t)dice_draw(d, 4);
	ask.n_convert = (int64_t)dice_draw(d, 3);
	ask.n_other = (int64_t)dice_draw(d, 4);
	ask.has_nonshare = dice_draw(d, 2);
	ask.nonshare = RATIO(dice_draw(d, 11), 10);
	ask.root = (enum stage_root)dice_draw(d, 2);
	ask.fallback = (enum stage_fallback)dice_draw(d, 4);
	ask.want_slots = (int64_t)dice_draw(d, 10);
	cr_assert(stage_config_fits(c) && stage_amounts_fit(base) && stage_ask_fits(&ask));
	r = stage_evaluate(c, base, &ask);
	other = stage_evaluate(c, base, &(struct stage_ask){.n_other = 3});
	again = stage_evaluate(c, base, &ask);
	(void)other;
	cr_assert(stage_amounts_equal(&r.amounts, &again.amounts) && r.rules == again.rules);
	cr_assert(stage_amounts_fit(&r.amounts));
	if (!r.rules || c->mode == STAGE_FIRST) {
		cr_assert_not(r.clamped);
		return r;
	}
	cr_assert_leq(r.amounts.private_mib + r.amounts.shared_mib, cap);
	/* Shared memory keeps its tenth, unless the rules say less or the cap is smaller. */
	if (r.clamped)
		cr_assert(r.amounts.private_mib + r.amounts.shared_mib == cap);
	return r;
}

Test(stage, random_stages_stay_within_their_cap)
{
	uint64_t first, n = dice_seeds(HISTORIES, &first);

	for (uint64_t seed = first; seed < first + n; seed++) {
		struct dice d = {seed};

		for (unsigned i = 0; i < STEPS; i++) {
			struct stage_config c = some_config(&d);
			struct stage_amounts base = some_amounts(&d), a = some_amounts(&d), merged;

			(void)evaluate(&d, &c, &base);
			cr_assert(stage_merge(&base, &a, STAGE_CONFLICT_HOST, 1500, &merged));
			cr_assert_leq(merged.private_mib + merged.shared_mib, 1500);
			cr_assert(stage_amounts_fit(&merged));
		}
	}
}

struct world {
	struct dice dice;
	struct stagebook *b;
	struct stage_amounts base, by_id[STEPS + 2];
	bool known[STEPS + 2];
	struct stagebook_session s[SESSIONS];
	bool there[SESSIONS], waits[SESSIONS];
	uint64_t until[SESSIONS], now;
	int64_t total;
};

/* Those that waited and may begin now. */
static void take_granted(struct world *w)
{
	struct stagebook_session *s;

	while ((s = stagebook_next(w->b))) {
		size_t i = (size_t)(s - w->s);

		cr_assert(w->waits[i] && !s->waits);
		cr_assert(!s->degraded || w->now >= w->until[i], "degraded before its time");
		w->waits[i] = false;
	}
}

static void look(struct world *w)
{
	int64_t held = 0;

	take_granted(w);
	for (uint64_t i = 0; i < SESSIONS; i++) {
		cr_assert(!w->there[i] || w->s[i].waits == w->waits[i]);
		held += w->there[i] ? w->s[i].has.private_mib + w->s[i].has.shared_mib : 0;
	}
	cr_assert_eq(held, stagebook_held_mib(w->b));
	cr_assert_leq(held, w->total);
}

static uint32_t some_id(struct world *w)
{
	struct stage_amounts a = some_amounts(&w->dice);
	uint32_t id, again;

	cr_assert_eq(stagebook_id(w->b, &a, &id), 0);
	cr_assert_eq(stagebook_id(w->b, &a, &again), 0);
	cr_assert_eq(id, again);
	cr_assert_leq(id, STEPS + 1);
	cr_assert(!w->known[id] || stage_amounts_equal(&a, &w->by_id[id]),
		  "an id means something else now");
	w->known[id] = true;
	w->by_id[id] = a;
	return id;
}

static void end_stage(struct world *w, uint64_t i)
{
	if (!w->there[i])
		return;
	stagebook_end(w->b, &w->s[i]);
	w->waits[i] = false;
	cr_assert_eq(w->s[i].profile, 0);
	cr_assert(stage_amounts_equal(&w->s[i].has, &w->base) || w->s[i].degraded);
}

static void leave(struct world *w, uint64_t i)
{
	if (w->there[i])
		stagebook_leave(w->b, &w->s[i]);
	w->there[i] = w->waits[i] = false;
}

static void step(struct world *w)
{
	uint64_t i = dice_draw(&w->dice, SESSIONS);
	int64_t wait_ms = (int64_t)dice_draw(&w->dice, 100);
	int got;

	switch (dice_draw(&w->dice, 6)) {
	case 0:
		if (!w->there[i])
			stagebook_join(w->b, &w->s[i]);
		w->there[i] = true;
		break;
	case 1:
		if (!dice_draw(&w->dice, 3))
			leave(w, i);
		break;
	case 2:
	case 3:
		if (!w->there[i])
			break;
		got = stagebook_begin(w->b, &w->s[i], some_id(w), wait_ms, w->now);
		cr_assert(got >= 0);
		w->waits[i] = got == 0;
		w->until[i] = w->now + (uint64_t)wait_ms;
		cr_assert(got || wait_ms);
		break;
	case 4:
		end_stage(w, i);
		break;
	default:
		w->now += dice_draw(&w->dice, 60);
		stagebook_tick(w->b, w->now);
		take_granted(w);
		for (i = 0; i < SESSIONS; i++)
			cr_assert(!w->waits[i] || w->now < w->until[i], "waits for ever");
	}
	look(w);
}

Test(stage, random_sessions_share_the_total_and_get_their_base_back)
{
	uint64_t first, n = dice_seeds(HISTORIES, &first);

	for (uint64_t seed = first; seed < first + n; seed++) {
		struct world w = {.dice = {seed},
				  .base = {500, 500, 4},
				  .total = 4000,
				  .by_id = {{500, 500, 4}}};

		w.known[0] = true;
		w.b = stagebook_new(&w.base, w.total);
		for (unsigned i = 0; i < STEPS; i++)
			step(&w);
		for (uint64_t i = 0; i < SESSIONS; i++)
			end_stage(&w, i);
		/* When all are outside of a stage and one more ends, there is room for its base. */
		for (uint64_t i = 1; i < SESSIONS; i++)
			leave(&w, i);
		if (w.there[0]) {
			stagebook_end(w.b, &w.s[0]);
			cr_assert_not(w.s[0].degraded);
			cr_assert(stage_amounts_equal(&w.s[0].has, &w.base));
		}
		stagebook_free(w.b);
	}
}

Test(stage, two_sessions_never_hold_more_than_the_total_and_the_second_runs_with_what_is_there)
{
	struct stage_amounts base = {30, 30, 2}, large = {60, 30, 4};
	struct world w = {.now = 0};
	uint32_t id;

	w.b = stagebook_new(&base, 140);
	stagebook_join(w.b, &w.s[0]);
	stagebook_join(w.b, &w.s[1]);
	cr_assert_eq(stagebook_id(w.b, &large, &id), 0);
	cr_assert_eq(id, 1);
	cr_assert_eq(stagebook_id(w.b, &base, &id), 0);
	cr_assert_eq(id, 0, "what equals the base is the base");
	cr_assert_eq(stagebook_id(w.b, &large, &id), 0);
	cr_assert_eq(id, 1);
	cr_assert_eq(stagebook_begin(w.b, &w.s[0], id, 2000, 0), 0, "120 are held, 150 would be");
	w.waits[0] = true;
	w.until[0] = 2000;
	cr_assert_eq(stagebook_next_ms(w.b), 2000);
	stagebook_tick(w.b, 1999);
	take_granted(&w);
	cr_assert(w.waits[0]);
	w.now = 2000;
	stagebook_tick(w.b, 2000);
	take_granted(&w);
	cr_assert_not(w.waits[0]);
	cr_assert(w.s[0].degraded && w.s[0].profile == id);
	cr_assert(w.s[0].has.private_mib == 60 && w.s[0].has.shared_mib == 20 &&
		  w.s[0].has.slots == 4);
	cr_assert_eq(stagebook_held_mib(w.b), 140);
	stagebook_end(w.b, &w.s[0]);
	cr_assert_eq(stagebook_held_mib(w.b), 120);
	stagebook_free(w.b);
}

Test(stage, what_is_known_of_the_bytes_is_enough)
{
	struct stage_config c = stage_defaults;
	struct stage_amounts base = {1024, 2048, 4};
	struct stage_ask ask = {.has_nonshare = true, .nonshare = RATIO(49, 100)};

	c.enabled = true;
	cr_assert_eq(stage_evaluate(&c, &base, &ask).rules, 0);
	ask.nonshare = RATIO(1, 2);
	cr_assert_eq(stage_evaluate(&c, &base, &ask).rules, STAGE_RULE_PARTIAL);
	ask.nonshare = RATIO(1, 1);
	cr_assert_eq(stage_evaluate(&c, &base, &ask).rules, STAGE_RULE_WHOLE);
	ask.fallback = STAGE_FALLBACK_NONE;
	cr_assert_eq(stage_evaluate(&c, &base, &ask).rules, 0);
	ask = (struct stage_ask){.n_native = 0};
	cr_assert_eq(stage_evaluate(&c, &base, &ask).rules, 0, "nothing is known");
}

Test(stage, what_of_the_base_others_held_comes_back_when_they_give_it_back)
{
	struct stage_amounts base = {30, 30, 2}, large = {90, 30, 4};
	struct world w = {.now = 0};
	uint32_t id;

	w.b = stagebook_new(&base, 150);
	stagebook_join(w.b, &w.s[0]);
	cr_assert_eq(stagebook_id(w.b, &large, &id), 0);
	cr_assert_eq(stagebook_begin(w.b, &w.s[0], id, 0, 0), 1);
	stagebook_join(w.b, &w.s[1]);
	cr_assert(w.s[1].degraded && w.s[1].has.private_mib == 30 && w.s[1].has.shared_mib == 0);
	stagebook_end(w.b, &w.s[0]);
	cr_assert(!w.s[1].degraded && stage_amounts_equal(&w.s[1].has, &base));
	/* A begin that takes less than before lets who waits in at once. */
	cr_assert_eq(stagebook_begin(w.b, &w.s[0], id, 2000, 0), 0, "60 + 120 are more than 150");
	w.waits[0] = true;
	w.until[0] = 2000;
	cr_assert_eq(stagebook_id(w.b, &(struct stage_amounts){20, 10, 1}, &id), 0);
	cr_assert_eq(stagebook_begin(w.b, &w.s[1], id, 2000, 0), 1);
	take_granted(&w);
	cr_assert(!w.waits[0] && !w.s[0].degraded && w.s[0].profile == 1);
	stagebook_free(w.b);
}

static bool is_in(uint32_t id, const struct stage_amounts *amounts, void *arg)
{
	uint32_t *io = arg;

	(void)amounts;
	io[0] += id == io[1];
	return true;
}

Test(stage, many_profiles_push_out_what_nobody_has_and_no_id_comes_back)
{
	struct stage_amounts base = {30, 30, 2}, kept = {40, 30, 2}, waited = {400, 30, 2},
			     early = {50, 30, 2}, a = {0, 0, 1};
	uint32_t kept_id, waited_id, early_id, id = 0, last = 0, found[2] = {0};
	struct world w = {.now = 0};

	w.b = stagebook_new(&base, 200);
	cr_assert(stagebook_id(w.b, &early, &early_id) == 0 &&
		  stagebook_id(w.b, &kept, &kept_id) == 0);
	cr_assert_eq(stagebook_id(w.b, &waited, &waited_id), 0);
	stagebook_join(w.b, &w.s[0]);
	stagebook_join(w.b, &w.s[1]);
	cr_assert_eq(stagebook_begin(w.b, &w.s[0], kept_id, 0, 0), 1);
	cr_assert_eq(stagebook_begin(w.b, &w.s[1], waited_id, 1000, 0), 0);
	for (uint32_t i = 0; i < STAGEBOOK_PROFILES + 10; i++) {
		a.private_mib = 1000 + i;
		cr_assert_eq(stagebook_id(w.b, &a, &id), 0);
		cr_assert_gt(id, last);
		last = id;
	}
	cr_assert(stagebook_amounts(w.b, kept_id, &a) && stage_amounts_equal(&a, &kept),
		  "somebody has it");
	cr_assert(stagebook_amounts(w.b, waited_id, &a), "somebody waits for it");
	cr_assert_not(stagebook_amounts(w.b, early_id, &a));
	cr_assert_eq(stagebook_begin(w.b, &w.s[0], early_id, 0, 0), -ENOENT);
	cr_assert_eq(stagebook_id(w.b, &early, &id), 0);
	cr_assert_gt(id, last, "an id never means something else, nor comes back");
	found[1] = kept_id;
	stagebook_each(w.b, is_in, found);
	cr_assert_eq(found[0], 1);
	/* Nobody has them any more: they go as all others. */
	stagebook_leave(w.b, &w.s[0]);
	stagebook_end(w.b, &w.s[1]);
	for (uint32_t i = 0; i < STAGEBOOK_PROFILES; i++) {
		a = (struct stage_amounts){.private_mib = 90000 + i, .slots = 1};
		cr_assert_eq(stagebook_id(w.b, &a, &id), 0);
	}
	cr_assert(!stagebook_amounts(w.b, kept_id, &a) && !stagebook_amounts(w.b, waited_id, &a));
	stagebook_free(w.b);
}
