/* SPDX-License-Identifier: Apache-2.0 */
/* The policy of eviction: which object goes first, and how much has to go. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "evict.h"

#define MIB    (1ull << 20)
#define SECOND 1000000000ull

/* 16 MiB used ten seconds ago under one name, in a store of fair size that
 * has not shrunk anything yet. */
static struct shms_victim ordinary(uint64_t id)
{
	return (struct shms_victim){.id = id,
				    .bytes = 16 * MIB,
				    .age_ns = 10 * SECOND,
				    .n_names = 1,
				    .weight = SHMS_VICTIM_ONE,
				    .ratio = SHMS_VICTIM_ONE};
}

/* The ids in the order in which they go. */
static void order(struct shms_victim *v, size_t n, uint64_t *ret)
{
	shms_victims_sort(v, n);
	for (size_t i = 0; i < n; i++)
		ret[i] = v[i].id;
}

/* True if a goes first, whatever their order in the array and whoever has the lower id. */
static bool goes_first(struct shms_victim a, struct shms_victim b)
{
	bool first[4];

	for (int i = 0; i < 4; i++) {
		struct shms_victim v[2] = {i & 1 ? b : a, i & 1 ? a : b};
		uint64_t ids[2], id_a = i & 2 ? 7 : 3;

		v[i & 1].id = id_a;
		v[!(i & 1)].id = 10 - id_a;
		order(v, 2, ids);
		first[i] = ids[0] == id_a;
	}
	for (int i = 1; i < 4; i++)
		cr_assert_eq(first[i], first[0],
			     "the order of two does not depend on where they stand");
	return first[0];
}

Test(victim, older_goes_first)
{
	struct shms_victim young = ordinary(0), old = young;

	old.age_ns += SECOND;
	cr_assert(goes_first(old, young));
}

Test(victim, larger_of_two_equally_old_goes_first)
{
	struct shms_victim small = ordinary(0), large = small;

	large.bytes *= 2;
	cr_assert(goes_first(large, small));
	small.bytes = 4096;
	small.age_ns *= 5;
	cr_assert(goes_first(large, small), "a page costs more than it gives");
	small.age_ns *= 5;
	cr_assert(goes_first(small, large), "but not for ever");
}

Test(victim, clean_goes_before_what_must_be_written)
{
	struct shms_victim clean = ordinary(0), dirty = clean;

	clean.clean = true;
	cr_assert(goes_first(clean, dirty));
	clean.age_ns = dirty.age_ns / 4;
	cr_assert(goes_first(clean, dirty));
	clean.age_ns = dirty.age_ns / 100;
	cr_assert(goes_first(dirty, clean), "what was promoted a moment ago is about to be used");
}

Test(victim, compressible_goes_before_noise)
{
	struct shms_victim frames = ordinary(0), noise = frames;

	frames.ratio = SHMS_VICTIM_ONE / 4;
	cr_assert(goes_first(frames, noise));
	frames.age_ns = noise.age_ns / 100;
	cr_assert(goes_first(noise, frames));
}

Test(victim, fewer_names_go_first)
{
	struct shms_victim one = ordinary(0), many = one;

	many.n_names = 50;
	cr_assert(goes_first(one, many));
}

Test(victim, mapped_goes_last_whatever_else)
{
	struct shms_victim mapped = ordinary(0), hot = mapped;

	mapped.mapped = mapped.clean = mapped.near = true;
	mapped.age_ns = 1000 * SECOND;
	hot.age_ns = 0;
	cr_assert(goes_first(hot, mapped));
}

Test(victim, the_store_that_wants_room_pays_first)
{
	struct shms_victim near = ordinary(0), other = near;

	near.near = true;
	other.clean = true;
	other.age_ns = 1000 * SECOND;
	cr_assert(goes_first(near, other));
	near.mapped = true;
	cr_assert(goes_first(other, near));
}

Test(victim, weight_follows_share_and_idleness)
{
	const struct shms_victim_store fair = {.uss = MIB, .share = MIB}, unknown = {.uss = MIB},
				       over = {.uss = 2 * MIB, .share = MIB},
				       hog = {.uss = MIB << 30, .share = MIB},
				       idle = {.uss = 0, .share = MIB, .idle_ns = 60 * SECOND},
				       idle_hog = {
					       .uss = MIB << 30, .share = 1, .idle_ns = UINT64_MAX};

	cr_assert_eq(shms_victim_weight(&fair), SHMS_VICTIM_ONE);
	cr_assert_eq(shms_victim_weight(&unknown), SHMS_VICTIM_ONE);
	cr_assert_gt(shms_victim_weight(&over), SHMS_VICTIM_ONE * 3 / 2);
	cr_assert_leq(shms_victim_weight(&over), 2 * SHMS_VICTIM_ONE);
	cr_assert_eq(shms_victim_weight(&hog), 4 * SHMS_VICTIM_ONE);
	cr_assert_eq(shms_victim_weight(&idle), 2 * SHMS_VICTIM_ONE);
	cr_assert_eq(shms_victim_weight(&idle_hog), 8 * SHMS_VICTIM_ONE);
}

Test(victim, of_stores_above_their_share_goes_first)
{
	struct shms_victim hogs = ordinary(0), fair = hogs;

	hogs.weight = 4 * SHMS_VICTIM_ONE;
	fair.age_ns = 3 * hogs.age_ns;
	cr_assert(goes_first(hogs, fair));
	fair.age_ns = 5 * hogs.age_ns;
	cr_assert(goes_first(fair, hogs));
}

Test(victim, ties_go_by_id)
{
	struct shms_victim v[100];
	uint64_t ids[100];

	for (uint64_t i = 0; i < 100; i++)
		v[i] = ordinary((i * 37) % 100);
	order(v, 100, ids);
	for (uint64_t i = 0; i < 100; i++)
		cr_assert_eq(ids[i], i);
}

/* Of one kind the order is that of their last use, exactly: LRU. */
Test(victim, alike_but_for_their_age_is_lru)
{
	enum {
		N = 1000
	};
	struct shms_victim *v = calloc(N, sizeof(*v));
	uint64_t ids[N];

	for (uint64_t i = 0; i < N; i++) {
		v[i] = ordinary((i * 389) % N);
		v[i].age_ns = (N - v[i].id) * 1000; /* nearer than the score can tell */
	}
	order(v, N, ids);
	for (uint64_t i = 0; i < N; i++)
		cr_assert_eq(ids[i], i);
	free(v);
}

static uint64_t draw(uint64_t *io_seed)
{
	*io_seed = *io_seed * 6364136223846793005ull + 1442695040888963407ull;
	return *io_seed >> 16;
}

static struct shms_victim any(uint64_t id, uint64_t *io_seed)
{
	return (struct shms_victim){.id = id,
				    .bytes = draw(io_seed) % (1ull << (12 + draw(io_seed) % 30)),
				    .age_ns = draw(io_seed) % (1ull << (draw(io_seed) % 48)),
				    .n_names = 1 + (uint32_t)(draw(io_seed) % 4),
				    .weight = SHMS_VICTIM_ONE * (1 + (uint32_t)(draw(io_seed) % 8)),
				    .ratio = 1 + (uint32_t)(draw(io_seed) % SHMS_VICTIM_ONE),
				    .clean = draw(io_seed) % 3 == 0,
				    .mapped = draw(io_seed) % 5 == 0,
				    .near = draw(io_seed) % 5 == 0};
}

/* The rule for any two neighbours in the order, said once more. */
static bool right_order(const struct shms_victim *a, const struct shms_victim *b)
{
	if (a->mapped != b->mapped)
		return b->mapped;
	if (a->near != b->near)
		return a->near;
	if (a->score != b->score)
		return a->score > b->score;
	return a->age_ns != b->age_ns ? a->age_ns > b->age_ns : a->id < b->id;
}

Test(victim, random_ones_come_in_order_and_in_the_same_one_again)
{
	enum {
		N = 500
	};
	static struct shms_victim v[N], again[N];
	static uint64_t ids[N], ids_again[N];
	uint64_t seed = 11;

	for (int round = 0; round < 20; round++) {
		for (uint64_t i = 0; i < N; i++)
			v[i] = again[N - 1 - i] = any(i, &seed);
		order(v, N, ids);
		order(again, N, ids_again);
		cr_assert_arr_eq(ids, ids_again, sizeof(ids));
		for (size_t i = 0; i + 1 < N; i++)
			cr_assert(right_order(&v[i], &v[i + 1]));
	}
}

Test(victim, the_largest_numbers_do_not_wrap)
{
	struct shms_victim most = ordinary(1), less;

	most.bytes = 1ull << 47;
	most.age_ns = UINT64_MAX;
	most.weight = 8 * SHMS_VICTIM_ONE;
	most.ratio = 1;
	most.clean = true;
	less = most;
	less.age_ns = 1ull << 40;
	cr_assert(goes_first(most, less));
	shms_victims_sort(&most, 1);
	cr_assert_lt(most.score, 1ull << 62);
	cr_assert_gt(most.score, 1ull << 59);
}

Test(victim, what_frees_nothing_goes_last)
{
	struct shms_victim nothing = ordinary(0), page = nothing;

	nothing.bytes = 0;
	nothing.age_ns = UINT64_MAX;
	page.bytes = 4096;
	page.age_ns = SECOND;
	cr_assert(goes_first(page, nothing));
}

Test(victim, nothing_is_no_victim)
{
	shms_victims_sort(NULL, 0);
}

/* ---- how much -------------------------------------------------------------------------------- */

Test(victim, watermarks_have_hysteresis)
{
	uint64_t size = 1000 * MIB, used = 0, freed = 0;
	int evictions = 0;

	/* 10 MiB come in each step; what is above the high one goes down to the low one, and
	 * then there is quiet again. */
	for (int step = 0; step < 1000; step++) {
		uint64_t goal;

		used += 10 * MIB;
		goal = shms_victim_goal(size, used, 85, 75);
		if (!goal) {
			cr_assert_leq(used, 850 * MIB);
			continue;
		}
		cr_assert_gt(used, 850 * MIB - 100);
		used -= goal;
		cr_assert_eq(used, 750 * MIB);
		freed += goal;
		evictions++;
	}
	cr_assert_leq(evictions, 1000 / 10);
	cr_assert_eq(freed + used, 10000 * MIB);
}

Test(victim, watermarks_at_their_edges)
{
	cr_assert_eq(shms_victim_goal(0, 0, 85, 75), 0);
	cr_assert_eq(shms_victim_goal(1000, 850, 85, 75), 0);
	cr_assert_eq(shms_victim_goal(1000, 851, 85, 75), 101);
	cr_assert_eq(shms_victim_goal(1000, 1000, 100, 99), 0, "a full one is not above 100 %%");
	cr_assert_eq(shms_victim_goal(1000, 1, 0, 0), 1);
	cr_assert_eq(shms_victim_goal(UINT64_MAX, UINT64_MAX, 85, 75),
		     UINT64_MAX - UINT64_MAX / 100 * 75);
	cr_assert_eq(shms_victim_goal(1000, 500, 10, 90), 0, "a low one above the high one");
}

Test(victim, a_batch_is_a_small_part_and_bounded)
{
	cr_assert_eq(shms_victim_batch(0), 4 * MIB);
	cr_assert_eq(shms_victim_batch(1024 * MIB), 16 * MIB);
	cr_assert_eq(shms_victim_batch(UINT64_MAX), 256 * MIB);
}
