/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_profilegrowth.c: what a task of some age will have at most, against a list of all tasks.
 * $SHMSTORE_SEED plays one history.
 *
 *     no task of the last PROFILE_RING has more in the end than its kind says at any age that it
 *     reached, whatever it had had by then fewer than PROFILE_GREW tasks of an age, or one that had
 *     nothing at that age, say nothing
 */
#include <criterion/criterion.h>

#include "dice.h"
#include "profile.h"

#define HISTORIES 40u
#define TASKS     300u

static const struct profile_name name = {"c", "f", ""};

/* A life of so many steps; each takes a while, and adds something. Returns what it had at
 * PROFILE_AGE(i) for the ages that it reached. */
static struct profile_task live(struct dice *d)
{
	struct profile_task t = {.has = {true}};
	uint64_t age = 0, bytes = 1 + dice_draw(d, 1000), span = 1 + dice_draw(d, 300);
	struct profiletrack track;

	profiletrack_init(&track);
	for (unsigned i = 0; i < 10; i++) {
		profiletrack_note(&track, age, bytes);
		age += 1 + dice_draw(d, span);
		bytes += dice_draw(d, 500);
	}
	profiletrack_end(&track, age, &t);
	t.used[PROFILE_PRIVATE] = track.peak;
	return t;
}

Test(profilegrowth, no_task_of_the_last_had_more_than_its_kind_says)
{
	uint64_t first, n = dice_seeds(HISTORIES, &first);

	for (uint64_t seed = first; seed < first + n; seed++) {
		struct profile *p = profile_new(1);
		struct profile_task tasks[TASKS];
		struct dice d = {seed};
		unsigned n_tasks = PROFILE_GREW + (unsigned)dice_draw(&d, TASKS - PROFILE_GREW);
		unsigned last = n_tasks < PROFILE_RING ? n_tasks : PROFILE_RING, known = 0;

		for (unsigned i = 0; i < n_tasks; i++) {
			tasks[i] = live(&d);
			cr_assert_eq(profile_feed(p, &name, &tasks[i]), 0);
		}
		for (unsigned i = n_tasks - last; i < n_tasks; i++)
			for (unsigned a = 0; a < tasks[i].n_ages; a++) {
				uint64_t most = profile_at_most(profile_find(p, &name),
								PROFILE_AGE(a), tasks[i].by_age[a]);

				cr_assert_geq(most, tasks[i].used[PROFILE_PRIVATE],
					      "seed %lu task %u age %u", (unsigned long)seed, i, a);
				known += most != UINT64_MAX;
			}
		cr_assert(known, "seed %lu", (unsigned long)seed);
		profile_free(p);
	}
}

static struct profile_task grown(uint64_t had, uint64_t peak, unsigned n_ages)
{
	struct profile_task t = {.used = {peak}, .has = {true}, .n_ages = n_ages};

	for (unsigned i = 0; i < n_ages; i++)
		t.by_age[i] = had;
	return t;
}

static void feed(struct profile *p, struct profile_task t, unsigned times)
{
	for (unsigned i = 0; i < times; i++)
		cr_assert_eq(profile_feed(p, &name, &t), 0);
}

static uint64_t at_most(const struct profile *p, unsigned age, uint64_t had)
{
	return profile_at_most(profile_find(p, &name), PROFILE_AGE(age), had);
}

Test(profilegrowth, few_tasks_and_those_that_had_nothing_say_nothing)
{
	struct profile *p = profile_new(1);

	cr_assert_eq(at_most(p, 3, 10), UINT64_MAX, "there is no such kind");
	feed(p, grown(100, 400, 4), PROFILE_GREW - 1);
	cr_assert_eq(at_most(p, 3, 10), UINT64_MAX);
	feed(p, grown(100, 400, 2), 1);
	cr_assert_eq(at_most(p, 1, 10), 40);
	cr_assert_eq(at_most(p, 3, 10), 40,
		     "too few became so old: what is known of younger ones holds");
	cr_assert_eq(at_most(p, 3, 0), UINT64_MAX, "it has nothing yet");
	cr_assert_eq(at_most(p, 1, PROFILE_MOST), PROFILE_MOST);
	feed(p, grown(0, 400, 2), 1);
	cr_assert_eq(at_most(p, 1, 10), UINT64_MAX, "one had nothing, and took everything later");
	profile_free(p);
}

Test(profilegrowth, what_was_long_ago_is_forgotten_and_a_killed_one_contradicts)
{
	struct profile *p = profile_new(1);

	feed(p, grown(1, 1000, 2), 1);
	feed(p, grown(100, 200, 2), PROFILE_RING);
	cr_assert_eq(at_most(p, 1, 10), 10000);
	feed(p, grown(100, 200, 2), PROFILE_RING);
	cr_assert_eq(at_most(p, 1, 10), 20);
	cr_assert_eq(profile_killed(p, &name, 5000), 0);
	cr_assert_eq(at_most(p, 1, 10), UINT64_MAX);
	profile_free(p);
}

Test(profilegrowth, a_merged_profile_takes_the_one_that_grew_more)
{
	struct profile *p = profile_new(1), *q = profile_new(1);

	feed(p, grown(100, 200, 2), PROFILE_GREW);
	feed(q, grown(100, 700, 2), PROFILE_GREW);
	cr_assert_eq(profile_merge(p, q), 0);
	cr_assert_eq(at_most(p, 1, 10), 70);
	profile_free(p);
	profile_free(q);
}
