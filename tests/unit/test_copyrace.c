/* SPDX-License-Identifier: Apache-2.0 */
/* The race of ways to copy: the fastest wins whatever it is, slow ones cost little, and a
 * machine that changes is noticed. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "copy.h"

#define WAYS 3u

static struct shms_copyrace race;
static uint32_t seed = 1;

/* Up to so many percent more, as a busy machine has it; now and then ten times as much. */
static uint64_t noisy(uint64_t time, unsigned percent)
{
	seed = seed * 1664525 + 1013904223;
	if (percent && (seed >> 8) % 23 == 0)
		return 10 * time;
	return time + time * ((seed >> 16) % (percent + 1)) / 100;
}

/* So many copies, each as long as times says of its way. The sum of their
 * times, without the noise. */
static uint64_t play(const uint64_t times[WAYS], unsigned n, unsigned percent)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < n; i++) {
		bool timed;
		uint32_t way = shms_copyrace_way(&race, &timed);

		cr_assert(way < WAYS);
		sum += times[way];
		if (timed)
			shms_copyrace_ran(&race, way, noisy(times[way], percent));
	}
	return sum;
}

static uint32_t winner(void)
{
	return atomic_load(&race.best);
}

Test(copyrace, each_way_has_a_turn_before_one_wins)
{
	static const uint64_t times[WAYS] = {1000, 3000, 500};
	bool timed;
	unsigned n[WAYS] = {0};

	for (unsigned i = 0; i < SHMS_COPYRACE_TURN * WAYS; i++) {
		uint32_t way = shms_copyrace_way(&race, &timed);

		cr_assert(timed);
		n[way]++;
		shms_copyrace_ran(&race, way, times[way]);
	}
	for (unsigned i = 0; i < WAYS; i++)
		cr_assert_eq(n[i], SHMS_COPYRACE_TURN);
	cr_assert_eq(shms_copyrace_way(&race, &timed), 2);
	cr_assert_not(timed);
}

Test(copyrace, the_fastest_wins_whichever_it_is_beside_noise)
{
	for (unsigned fast = 0; fast < WAYS; fast++) {
		for (unsigned percent = 90; percent <= 300; percent += 10) {
			uint64_t times[WAYS] = {percent * 10, percent * 10, percent * 10};

			if (percent > 95 && percent < 110)
				continue; /* as good as equal */
			times[fast] = percent < 100 ? percent * 9 : 1000;
			race = (struct shms_copyrace){0};
			play(times, 400, 0);
			cr_assert_eq(winner(), fast, "%u of %u %%", fast, percent);
			play(times, 4000, 4);
			cr_assert_eq(winner(), fast, "%u of %u %%, with noise", fast, percent);
		}
	}
}

Test(copyrace, ways_that_lose_cost_little)
{
	static const uint64_t times[WAYS] = {3000, 1000, 3000};
	uint64_t sum = play(times, 200, 0);

	cr_assert_leq(sum, 200 * 1000 + 3 * SHMS_COPYRACE_TURN * 2000, "%lu", (unsigned long)sum);
	sum = play(times, 100000, 4);
	cr_assert_leq(sum, 100000ul * 1000 * 101 / 100, "%lu", (unsigned long)sum);
}

Test(copyrace, a_machine_that_changes_is_noticed)
{
	static const uint64_t before[WAYS] = {1000, 800, 2000}, after[WAYS] = {1000, 3000, 600};

	play(before, 100000, 4);
	cr_assert_eq(winner(), 1);
	play(after, 2 * 4096 + 100, 4);
	cr_assert_eq(winner(), 2);
}

/* Copies that pass the caches by leave the destination in none, so the next copy of another way is
 * slow, too: it wins nothing by that. */
Test(copyrace, a_way_that_slows_the_next_copy_is_found_out)
{
	static const uint64_t warm[WAYS] = {640, 620, 980}, cold[WAYS] = {1300, 1350, 980};
	bool in_caches = false;

	play(cold, 1000, 3);
	cr_assert_eq(winner(), 2);
	for (unsigned i = 0; i < 2 * 4096; i++) {
		bool timed;
		uint32_t way = shms_copyrace_way(&race, &timed);

		if (timed)
			shms_copyrace_ran(&race, way, noisy(in_caches ? warm[way] : cold[way], 3));
		in_caches = way != 2;
	}
	cr_assert_neq(winner(), 2);
}

Test(copyrace, only_one_thread_is_in_a_heat)
{
	bool first, second, third;
	uint32_t way = shms_copyrace_way(&race, &first);

	shms_copyrace_way(&race, &second);
	cr_assert(first);
	cr_assert_not(second);
	shms_copyrace_ran(&race, way, 7);
	shms_copyrace_way(&race, &third);
	cr_assert(third);
}
