/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_profiletrack.c: a task's life in parts, against one that keeps every sample.
 * $SHMSTORE_SEED plays one history.
 *
 *     the peak is that of the samples
 *     a phase's peak is at least that of its samples, and at most that of the
 *     samples within one part of it
 */
#include <criterion/criterion.h>
#include <string.h>

#include "dice.h"
#include "profile.h"

#define HISTORIES 60u
#define SAMPLES   500u

struct sample {
	uint64_t age_ms, bytes;
};

/* The most that it had from one age up to another: what it had when that began counts. */
static uint64_t peak_between(const struct sample *samples, unsigned n, uint64_t from_ms,
			     uint64_t to_ms)
{
	uint64_t peak = 0;

	for (unsigned i = 0; i < n && samples[i].age_ms < to_ms; i++) {
		if (i + 1 < n && samples[i + 1].age_ms <= from_ms)
			continue;
		peak = samples[i].bytes > peak ? samples[i].bytes : peak;
	}
	return peak;
}

Test(profiletrack, phases_are_what_a_list_of_all_samples_says)
{
	uint64_t first, n = dice_seeds(HISTORIES, &first);

	for (uint64_t seed = first; seed < first + n; seed++) {
		struct dice d = {seed};
		struct sample samples[SAMPLES];
		unsigned n_samples = 8 + (unsigned)dice_draw(&d, SAMPLES - 8);
		uint64_t step = UINT64_C(1) << dice_draw(&d, 20), age = 0, life, part, peak = 0;
		struct profiletrack t;
		struct profile_task task = {0};

		profiletrack_init(&t);
		for (unsigned i = 0; i < n_samples; i++) {
			samples[i] = (struct sample){age, dice_draw(&d, 1000)};
			peak = samples[i].bytes > peak ? samples[i].bytes : peak;
			profiletrack_note(&t, age, samples[i].bytes);
			age += 1 + dice_draw(&d, step);
		}
		life = age + 8;
		profiletrack_end(&t, life, &task);
		cr_assert_eq(t.peak, peak);
		cr_assert_eq(task.life_ms, life);
		cr_assert_eq(task.n_phases, PROFILE_PHASES);
		for (part = t.part_ms; life / part >= PROFILETRACK_PARTS;)
			part *= 2;
		for (unsigned i = 0; i < PROFILE_PHASES; i++) {
			uint64_t from = life * i / PROFILE_PHASES,
				 to = life * (i + 1) / PROFILE_PHASES;

			cr_assert_geq(task.phases[i], peak_between(samples, n_samples, from, to),
				      "seed %lu", (unsigned long)seed);
			cr_assert_leq(task.phases[i],
				      peak_between(samples, n_samples,
						   from < part ? 0 : from - part, to + part),
				      "seed %lu", (unsigned long)seed);
		}
	}
}

Test(profiletrack, few_samples_say_nothing_of_phases)
{
	struct profile_task task = {.n_phases = 3};
	struct profiletrack t;

	profiletrack_init(&t);
	profiletrack_end(&t, 0, &task);
	cr_assert(task.n_phases == 0 && task.life_ms == 1 && t.peak == 0);
	for (unsigned i = 0; i < PROFILE_PHASES - 1; i++)
		profiletrack_note(&t, i * 100, 7);
	profiletrack_end(&t, 1000, &task);
	cr_assert(task.n_phases == 0 && task.life_ms == 1000 && t.peak == 7);
	/* A clock that goes back is the last age again. */
	profiletrack_note(&t, 1000, 3);
	profiletrack_note(&t, 5, 9);
	profiletrack_end(&t, 1001, &task);
	cr_assert(task.n_phases == PROFILE_PHASES && task.phases[7] == 9 && task.phases[0] == 7);
	profiletrack_end(&t, UINT64_MAX, &task);
	cr_assert_eq(task.n_phases, 0);
}
