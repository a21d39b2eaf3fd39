/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pull.c: random histories of bundles and of memory that grows and shrinks. $SHMSTORE_SEED plays one. After each step:
 *
 *     bytes is the sum of the objects of active bundles that are not pinned, each once
 *     if any bundle can be active, one is
 *     where there is more than is available, none but GETs is active, or only one; in mode HOST GETs take at most the reserve beyond it
 *     in mode FIRST every GET whose sizes are known is active
 *     of WAIT and ARGS no later bundle is active where an earlier one is not (while all sizes were known from the beginning)
 *     who listens to changes knows the same set
 */
#include <criterion/criterion.h>
#include <errno.h>

#include "dice.h"
#include "pull.h"
#include "pullargs.h"

#define HISTORIES 120u
#define STEPS     150u
#define BUNDLES   24u
#define OBJECTS   16u
#define EACH      4u
#define RESERVE   6u

struct bundle {
	bool there, active; /* active: as was told */
	enum pull_rank rank;
	uint64_t order;
	unsigned n;
	uint64_t objects[EACH];
};

struct world {
	struct dice dice;
	struct pull *p;
	bool host, all_known;
	struct bundle bundles[BUNDLES];
	uint64_t sizes[OBJECTS]; /* of each object, told or not */
	bool told[OBJECTS], pinned[OBJECTS];
	uint64_t available, n_added;
};

static void changed(void *arg, uint64_t bundle, bool active)
{
	struct world *w = arg;

	cr_assert(w->bundles[bundle].active != active, "told twice");
	w->bundles[bundle].active = active;
}

static bool wanted(const struct world *w, uint64_t object)
{
	for (unsigned i = 0; i < BUNDLES; i++)
		for (unsigned k = 0; w->bundles[i].there && k < w->bundles[i].n; k++)
			if (w->bundles[i].objects[k] == object)
				return true;
	return false;
}

/* What nobody wants is forgotten. */
static void forget(struct world *w)
{
	for (uint64_t o = 0; o < OBJECTS; o++)
		if (!wanted(w, o))
			w->told[o] = w->pinned[o] = false;
}

static void add(struct world *w)
{
	uint64_t id = dice_draw(&w->dice, BUNDLES);
	struct bundle *b = &w->bundles[id];
	struct pull_object objects[EACH];

	if (b->there)
		return;
	*b = (struct bundle){.there = true, .rank = (enum pull_rank)dice_draw(&w->dice, 3), .order = ++w->n_added};
	b->n = 1 + (unsigned)dice_draw(&w->dice, EACH);
	for (unsigned i = 0; i < b->n; i++) {
		uint64_t o = dice_draw(&w->dice, OBJECTS);
		bool known = w->all_known || dice_draw(&w->dice, 4) != 0;

		b->objects[i] = o;
		objects[i] = (struct pull_object){o, known ? w->sizes[o] : PULL_UNKNOWN};
		w->told[o] |= known;
	}
	cr_assert_eq(pull_add(w->p, id, b->rank, objects, b->n), 0);
	cr_assert_eq(pull_add(w->p, id, b->rank, objects, b->n), -EEXIST);
}

static void remove_one(struct world *w)
{
	uint64_t id = dice_draw(&w->dice, BUNDLES);
	bool there = w->bundles[id].there;

	w->bundles[id].there = w->bundles[id].active = false;
	cr_assert_eq(pull_cancel(w->p, id), there ? 0 : -ENOENT);
	forget(w);
}

static void learn(struct world *w)
{
	uint64_t o = dice_draw(&w->dice, OBJECTS);
	int err = !wanted(w, o) ? -ENOENT : w->told[o] ? -EALREADY : 0;

	w->told[o] |= !err;
	cr_assert_eq(pull_size(w->p, o, w->sizes[o]), err);
}

static void pin(struct world *w)
{
	uint64_t o = dice_draw(&w->dice, OBJECTS);
	bool pinned = dice_draw(&w->dice, 2);

	if (!wanted(w, o)) {
		cr_assert_eq(pull_pin(w->p, o, pinned), -ENOENT);
		return;
	}
	w->pinned[o] = pinned;
	cr_assert_eq(pull_pin(w->p, o, pinned), 0);
}

static bool eligible(const struct world *w, const struct bundle *b)
{
	for (unsigned i = 0; i < b->n; i++)
		if (!w->told[b->objects[i]])
			return false;
	return b->there;
}

static void look_at_order(const struct world *w)
{
	for (unsigned i = 0; i < BUNDLES; i++)
		for (unsigned k = 0; k < BUNDLES; k++) {
			const struct bundle *a = &w->bundles[i], *b = &w->bundles[k];

			if (a->there && b->there && a->rank == b->rank && a->order < b->order && b->active)
				cr_assert(a->active, "%u was passed over by %u", i, k);
		}
}

static void look(const struct world *w)
{
	bool counted[OBJECTS] = {false}, any = false;
	uint64_t bytes = 0, n = 0, n_gets = 0;

	for (unsigned i = 0; i < BUNDLES; i++) {
		const struct bundle *b = &w->bundles[i];

		cr_assert_eq(b->active, pull_is_active(w->p, i));
		cr_assert(!b->active || eligible(w, b));
		any |= eligible(w, b);
		n += b->active;
		n_gets += b->active && b->rank == PULL_GET;
		if (!w->host && eligible(w, b) && b->rank == PULL_GET)
			cr_assert(b->active, "a GET waits");
		for (unsigned k = 0; b->active && k < b->n; k++) {
			bytes += counted[b->objects[k]] || w->pinned[b->objects[k]] ? 0 : w->sizes[b->objects[k]];
			counted[b->objects[k]] = true;
		}
	}
	cr_assert_eq(bytes, pull_bytes(w->p));
	cr_assert_eq(n, pull_n_active(w->p));
	cr_assert(!any || n, "nothing goes on");
	cr_assert(bytes <= w->available || n == n_gets || n == 1, "beyond the quota");
	if (w->all_known)
		look_at_order(w);
}

static void step(struct world *w)
{
	switch (dice_draw(&w->dice, 8)) {
	case 0:
	case 1:
	case 2:
		add(w);
		break;
	case 3:
	case 4:
		remove_one(w);
		break;
	case 5:
		learn(w);
		break;
	case 6:
		pin(w);
		break;
	default:
		w->available = dice_draw(&w->dice, 40);
		pull_available(w->p, w->available);
	}
	look(w);
}

static void play(uint64_t seed)
{
	struct world w = {.dice = {seed}, .host = seed % 2, .all_known = seed % 4 < 2};
	struct pull_config config = {.mode = w.host ? PULL_HOST : PULL_FIRST, .reserve = RESERVE};

	w.p = pull_new(&config, changed, &w);
	cr_assert_not_null(w.p);
	for (unsigned i = 0; i < OBJECTS; i++)
		w.sizes[i] = dice_draw(&w.dice, 10);
	for (unsigned i = 0; i < STEPS; i++)
		step(&w);
	pull_free(w.p);
}

Test(pull, random_histories_keep_its_promises)
{
	uint64_t first, n = dice_seeds(HISTORIES, &first);

	for (uint64_t seed = first; seed < first + n; seed++)
		play(seed);
}

Test(pull, an_object_that_a_bundle_names_twice_is_one)
{
	const struct pull_object unknown[] = {{7, PULL_UNKNOWN}, {8, 2}, {7, PULL_UNKNOWN}}, known[] = {{9, 5}, {9, 5}};
	const struct pull_config config = {.mode = PULL_HOST, .reserve = RESERVE};
	struct pull *p = pull_new(&config, NULL, NULL);

	pull_available(p, 10);
	cr_assert_eq(pull_add(p, 1, PULL_GET, unknown, 3), 0);
	cr_assert_not(pull_is_active(p, 1));
	cr_assert_eq(pull_size(p, 7, 3), 0);
	cr_assert(pull_is_active(p, 1), "all its sizes are known");
	cr_assert_eq(pull_bytes(p), 5);
	cr_assert_eq(pull_add(p, 2, PULL_GET, known, 2), 0);
	cr_assert_eq(pull_bytes(p), 10);
	cr_assert_eq(pull_cancel(p, 1), 0);
	cr_assert_eq(pull_bytes(p), 5);
	cr_assert_eq(pull_pin(p, 7, true), -ENOENT, "nobody wants it any more");
	pull_free(p);
}

Test(pull, in_mode_host_a_get_takes_the_reserve_and_then_waits)
{
	struct pull_config config = {.mode = PULL_HOST, .reserve = RESERVE};
	struct pull *p = pull_new(&config, NULL, NULL);

	pull_available(p, 10);
	cr_assert_eq(pull_add(p, 1, PULL_GET, &(struct pull_object){1, 10}, 1), 0);
	cr_assert_eq(pull_add(p, 2, PULL_GET, &(struct pull_object){2, 6}, 1), 0);
	cr_assert_eq(pull_add(p, 3, PULL_GET, &(struct pull_object){3, 1}, 1), 0);
	cr_assert(pull_is_active(p, 1) && pull_is_active(p, 2) && !pull_is_active(p, 3));
	cr_assert_eq(pull_cancel(p, 2), 0);
	cr_assert(pull_is_active(p, 3));
	pull_free(p);
}

Test(pull, sizes_that_no_sum_holds_are_refused)
{
	struct pull_config config = {.mode = PULL_FIRST};
	struct pull *p = pull_new(&config, NULL, NULL);

	cr_assert_eq(pull_add(p, 1, PULL_GET, &(struct pull_object){1, PULL_MOST}, 1), 0);
	cr_assert_eq(pull_add(p, 2, PULL_GET, &(struct pull_object){2, 1}, 1), -EOVERFLOW);
	cr_assert_eq(pull_cancel(p, 2), -ENOENT, "nothing of it is left");
	cr_assert_eq(pull_cancel(p, 1), 0);
	cr_assert_eq(pull_add(p, 2, PULL_GET, &(struct pull_object){2, 1}, 1), 0);
	cr_assert_eq(pull_bytes(p), 1);
	pull_free(p);
}

static void pin_arguments(struct dice *d, struct pullargs *a, bool has[8])
{
	uint64_t task = dice_draw(d, 8), at = dice_draw(d, OBJECTS), before = pullargs_bytes(a), own;
	struct pull_object o[3] = {{at, at}, {at + 1, at + 1}, {at, at}};
	bool over = false;
	int got;

	own = at + at + 1;
	got = pullargs_pin(a, task, o, 3, &over);
	if (has[task] || !got) {
		cr_assert_eq(pullargs_bytes(a), before);
		cr_assert_eq(got, has[task]);
		cr_assert(got || (own <= 20 && before + own > 20), "refused without need");
		return;
	}
	has[task] = true;
	cr_assert_eq(over, own > 20);
	cr_assert(over || pullargs_bytes(a) <= 20, "%lu", (unsigned long)pullargs_bytes(a));
	cr_assert_leq(pullargs_bytes(a), before + own);
}

Test(pull, arguments_never_pin_more_than_the_limit_but_for_tasks_that_are_larger_alone)
{
	uint64_t first, n = dice_seeds(HISTORIES, &first);

	for (uint64_t seed = first; seed < first + n; seed++) {
		struct dice d = {seed};
		struct pullargs *a = pullargs_new(20);
		bool has[8] = {false};

		for (unsigned i = 0; i < STEPS; i++) {
			uint64_t task = dice_draw(&d, 8);

			if (dice_draw(&d, 2)) {
				pin_arguments(&d, a, has);
			} else {
				cr_assert_eq(pullargs_unpin(a, task), has[task] ? 0 : -ENOENT);
				has[task] = false;
			}
		}
		for (uint64_t task = 0; task < 8; task++)
			(void)pullargs_unpin(a, task);
		cr_assert_eq(pullargs_bytes(a), 0);
		pullargs_free(a);
	}
}
