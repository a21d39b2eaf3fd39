/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_profile.c: profiles against a model that keeps everything, and their files.
 * $SHMSTORE_SEED plays one history.
 *
 *     n, average, peak and p95 are those of the values that were fed; a merge is as if both had
 *     been fed to one a file that is read is written again as it was a file of which a byte is
 *     missing or changed is refused, and nothing of it is taken; so is one with a right checksum
 *     and wrong content, or all of it is taken as a prior n is halved and the peak stays, until the
 *     session's own values outweigh it
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "dice.h"
#include "profile.h"

#define HISTORIES 60u
#define VALUES    400u
#define KEYS      3u

static const struct profile_name names[KEYS] = {
	{"python", "load", ""}, {"python", "load", "A#1"}, {"c", "a b%c\n\xc3\xa9", "class"}};

static void feed(struct profile *p, const struct profile_name *name, uint64_t bytes)
{
	struct profile_task t = {.used = {bytes, bytes / 2, bytes % 977},
				 .has = {true, true, true}};

	t.life_ms = 1 + bytes % 1000;
	t.n_phases = PROFILE_PHASES;
	for (unsigned i = 0; i < PROFILE_PHASES; i++)
		t.phases[i] = bytes / (i + 1);
	cr_assert_eq(profile_feed(p, name, &t), 0);
}

static int compare(const void *a, const void *b)
{
	uint64_t x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	return (x > y) - (x < y);
}

static void look(const struct profile *p, const struct profile_name *name, const uint64_t *values,
		 size_t n)
{
	struct profile_stat s = profile_stat(profile_find(p, name), PROFILE_PRIVATE);
	size_t last = n < PROFILE_RING ? n : PROFILE_RING;
	uint64_t sum = 0, peak = 0, sorted[PROFILE_RING];

	cr_assert_eq(s.n, n);
	if (!n)
		return;
	for (size_t i = 0; i < n; i++) {
		sum += values[i];
		peak = values[i] > peak ? values[i] : peak;
	}
	memcpy(sorted, values + n - last, last * sizeof(sorted[0]));
	qsort(sorted, last, sizeof(sorted[0]), compare);
	cr_assert_eq(s.average, sum / n);
	cr_assert_eq(s.peak, peak);
	cr_assert_eq(s.p95, sorted[(last * 95 + 99) / 100 - 1]);
}

static void same_text(const struct profile *p, const char *text, size_t n)
{
	size_t m;
	char *again = profile_text(p, &m);

	cr_assert_eq(n, m);
	cr_assert(!memcmp(text, again, n));
	free(again);
}

Test(profile, random_histories_are_what_a_model_says)
{
	uint64_t first, n = dice_seeds(HISTORIES, &first);

	for (uint64_t seed = first; seed < first + n; seed++) {
		struct dice d = {seed};
		struct profile *p = profile_new(KEYS), *q = profile_new(KEYS);
		static uint64_t values[KEYS][VALUES];
		size_t counts[KEYS] = {0}, length;
		char *text;

		for (unsigned i = 0; i < VALUES; i++) {
			size_t k = dice_draw(&d, KEYS);
			uint64_t bytes = dice_bits(&d) >> (20 + dice_draw(&d, 40));

			feed(p, &names[k], bytes);
			values[k][counts[k]++] = bytes;
			if (i % 37 == 0)
				look(p, &names[k], values[k], counts[k]);
		}
		for (size_t k = 0; k < KEYS; k++)
			look(p, &names[k], values[k], counts[k]);
		cr_assert_eq(profile_killed(p, &names[0], 1 + dice_draw(&d, 1u << 20)), 0);
		text = profile_text(p, &length);
		cr_assert_eq(profile_load(q, text, length, false, NULL), 0);
		same_text(q, text, length);
		for (size_t k = 0; k < KEYS; k++)
			look(q, &names[k], values[k], counts[k]);
		free(text);
		profile_free(p);
		profile_free(q);
	}
}

Test(profile, a_merge_adds_up_and_takes_the_larger_peak)
{
	struct profile *a = profile_new(8), *b = profile_new(8);
	struct profile_stat s;

	for (unsigned i = 0; i < 10; i++)
		feed(a, &names[0], 100);
	for (unsigned i = 0; i < 30; i++)
		feed(b, &names[0], 300);
	feed(b, &names[1], 7);
	cr_assert_eq(profile_merge(a, b), 0);
	s = profile_stat(profile_find(a, &names[0]), PROFILE_PRIVATE);
	cr_assert(s.n == 40 && s.average == 250 && s.peak == 300 && s.p95 == 300);
	cr_assert_eq(profile_stat(profile_find(a, &names[1]), PROFILE_PRIVATE).n, 1);
	profile_free(a);
	profile_free(b);
}

static char *some_text(size_t *n)
{
	struct profile *p = profile_new(8);
	char *text;

	for (unsigned i = 0; i < 12; i++)
		feed(p, &names[i % KEYS], 1000 + i);
	text = profile_text(p, n);
	profile_free(p);
	return text;
}

Test(profile, a_file_that_is_cut_or_changed_is_refused_whole)
{
	struct profile *p = profile_new(8);
	size_t n, own;
	char *text = some_text(&n), *mine;

	feed(p, &names[0], 5);
	mine = profile_text(p, &own);
	for (size_t i = 0; i < n; i++) {
		const char *why = NULL;

		cr_assert_lt(profile_load(p, text, i, true, &why), 0, "cut at %zu", i);
		cr_assert_not_null(why);
		text[i] ^= 0x20;
		cr_assert_lt(profile_load(p, text, n, true, &why), 0, "changed at %zu", i);
		text[i] ^= 0x20;
		same_text(p, mine, own);
	}
	cr_assert_eq(profile_load(p, "shmstore-profile 2\ncrc32c 00000000\n", 35, true, NULL),
		     -EPROTONOSUPPORT);
	cr_assert_eq(profile_load(p, text, n, true, NULL), 0);
	free(text);
	free(mine);
	profile_free(p);
}

/* The checksum made right again. */
static void seal(char *text, size_t n)
{
	char sum[20];

	snprintf(sum, sizeof(sum), "crc32c %08x\n", crc32c(text, n - 16));
	memcpy(text + n - 16, sum, 16);
}

Test(profile, a_forged_file_is_refused_whole_or_is_possible)
{
	uint64_t first, n_seeds = dice_seeds(1000, &first);
	unsigned n_taken = 0, n_refused = 0;

	for (uint64_t seed = first; seed < first + n_seeds; seed++) {
		static const char chars[] = "0123456789 \n-%akz\xff";
		struct dice d = {seed};
		struct profile *p = profile_new(8);
		size_t n, m;
		char *text = some_text(&n), *again;

		for (uint64_t i = dice_draw(&d, 3); i < 3; i++)
			text[19 + dice_draw(&d, n - 16 - 19)] =
				chars[dice_draw(&d, sizeof(chars) - 1)];
		seal(text, n);
		if (profile_load(p, text, n, false, NULL) < 0) {
			cr_assert_eq(profile_n_keys(p), 0, "seed %lu", (unsigned long)seed);
			n_refused++;
		} else {
			struct profile *q = profile_new(8);

			again = profile_text(p, &m);
			cr_assert_eq(profile_load(q, again, m, true, NULL), 0, "seed %lu",
				     (unsigned long)seed);
			for (struct profile_key *k = profile_next(q, NULL); k;
			     k = profile_next(q, k))
				(void)(profile_estimate(k, PROFILE_PRIVATE, PROFILE_P95, 0, 0) +
				       profile_remaining(k, 10));
			profile_free(q);
			free(again);
			n_taken++;
		}
		free(text);
		profile_free(p);
	}
	cr_assert(n_seeds == 1 || (n_taken > 20 && n_refused > 100), "%u taken, %u refused",
		  n_taken, n_refused);
}

/* A file of one key with these numbers, and with the right checksum: as profile_load(). */
static int load_forged(const char *hash, const char *killed, const char *private)
{
	struct profile *p = profile_new(8);
	char text[512];
	int n = snprintf(text, sizeof(text),
			 "shmstore-profile 1\nkey %.32s -c -f - killed %s lives 0 phases 0 private "
			 "%s shared 0 0 0 0 0 "
			 "cpu 0 0 0 0 0\ncrc32c 00000000\n",
			 hash, killed, private);
	int r;

	seal(text, (size_t)n);
	r = profile_load(p, text, (size_t)n, false, NULL);
	cr_assert_eq(profile_n_keys(p), r == 0);
	profile_free(p);
	return r;
}

Test(profile, numbers_that_contradict_each_other_are_refused_though_the_checksum_is_right)
{
	/* n, sum, peak; how many last values, and these; how many steps of the
	 * histogram, and each with its count */
	static const struct {
		const char *killed, *private, *what;
	} wrong[] = {
		{"0 0 0", "1 30 20 2 10 20 0", "more last values than tasks"},
		{"0 0 0", "2 30 19 2 10 20 0", "a value above the peak"},
		{"0 0 0", "2 30 20 0 0", "tasks without a last value"},
		{"0 0 0", "0 5 0 0 0", "a sum of nothing"},
		{"0 0 0", "1 140737488355329 20 1 10 0", "an average that no task can have"},
		{"0 0 0", "2 30 20 2 10 20 2 9 1 8 1", "steps that go down"},
		{"0 0 0", "2 30 20 2 10 20 2 9 1 9 1", "a step twice"},
		{"0 0 0", "2 30 20 2 10 20 1 9 0", "a step without a task"},
		{"0 0 0", "2 30 20 2 10 20 1 128 1", "a step beyond the last"},
		{"7 0 0", "0 0 0 0 0", "a killed one that is forgotten already"},
		{"0 7 0", "0 0 0 0 0", "one to be forgotten, and none was killed"},
		{"7 129 0", "0 0 0 0 0", "one that is never forgotten"},
	};
	const struct profile_name name = {"c", "f", ""};
	struct profile *p = profile_new(8);
	size_t n;
	char *text;

	feed(p, &name, 5);
	text = profile_text(p, &n);
	cr_assert_eq(
		load_forged(strstr(text, "key ") + 4, "7 128 128", "2 30 20 2 10 20 2 8 1 9 1"), 0);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		cr_assert_eq(
			load_forged(strstr(text, "key ") + 4, wrong[i].killed, wrong[i].private),
			-EBADMSG, "%s", wrong[i].what);
	free(text);
	profile_free(p);
}

Test(profile, as_a_prior_it_weighs_half_and_its_peak_gives_way)
{
	struct profile *p = profile_new(8);
	struct profile_stat s;
	size_t n;
	char *text;

	for (unsigned i = 0; i < 200; i++)
		feed(p, &names[0], 1000);
	text = profile_text(p, &n);
	cr_assert_eq(profile_load(p, text, n, true, NULL), 0);
	free(text);
	s = profile_stat(profile_find(p, &names[0]), PROFILE_PRIVATE);
	cr_assert(s.n == 100 && s.peak == 1000 && s.average == 1000);
	for (unsigned i = 0; i < PROFILE_RING - 1; i++)
		feed(p, &names[0], 100);
	cr_assert_eq(profile_stat(profile_find(p, &names[0]), PROFILE_PRIVATE).peak, 1000);
	feed(p, &names[0], 100);
	cr_assert_eq(profile_stat(profile_find(p, &names[0]), PROFILE_PRIVATE).peak, 550);
	for (unsigned i = 0; i < 20 * PROFILE_RING; i++)
		feed(p, &names[0], 100);
	cr_assert_eq(profile_stat(profile_find(p, &names[0]), PROFILE_PRIVATE).peak, 100);
	profile_free(p);
}

Test(profile, one_task_survives_every_restart)
{
	struct profile *p = profile_new(8);

	feed(p, &names[0], 64);
	for (unsigned i = 0; i < 5; i++) {
		size_t n;
		char *text = profile_text(p, &n);

		cr_assert_eq(profile_load(p, text, n, true, NULL), 0);
		free(text);
	}
	cr_assert_eq(
		profile_estimate(profile_find(p, &names[0]), PROFILE_PRIVATE, PROFILE_PEAK, 0, 1),
		80);
	profile_free(p);
}

Test(profile, beyond_its_bound_the_key_that_was_fed_longest_ago_goes)
{
	struct profile *p = profile_new(2);
	size_t n;
	char *text;

	feed(p, &names[0], 1);
	feed(p, &names[1], 1);
	feed(p, &names[0], 1);
	/* A restart does not forget when that was. */
	text = profile_text(p, &n);
	cr_assert_eq(profile_load(p, text, n, true, NULL), 0);
	free(text);
	feed(p, &names[2], 1);
	cr_assert_eq(profile_n_keys(p), 2);
	cr_assert(profile_find(p, &names[0]) && !profile_find(p, &names[1]) &&
		  profile_find(p, &names[2]));
	profile_free(p);
}

Test(profile, a_killed_one_raises_the_estimate_until_as_many_as_the_ring_has_ended_well)
{
	struct profile *p = profile_new(2);

	for (unsigned i = 0; i < 5; i++)
		feed(p, &names[0], 100);
	cr_assert_eq(profile_killed(p, &names[0], 201), 0);
	for (unsigned i = 0; i < PROFILE_RING; i++) {
		cr_assert_eq(profile_estimate(profile_find(p, &names[0]), PROFILE_PRIVATE,
					      PROFILE_AVERAGE, 0, 0),
			     302);
		cr_assert(profile_was_preempted(profile_find(p, &names[0])));
		feed(p, &names[0], 100);
	}
	cr_assert_eq(profile_estimate(profile_find(p, &names[0]), PROFILE_PRIVATE, PROFILE_AVERAGE,
				      0, 0),
		     100);
	cr_assert_not(profile_was_preempted(profile_find(p, &names[0])));
	profile_free(p);
}

Test(profile, each_value_is_in_the_step_of_the_histogram_that_begins_below_it)
{
	struct dice d = {1};

	for (unsigned i = 0; i < 1000; i++) {
		struct profile *p = profile_new(1);
		uint64_t bytes = dice_bits(&d) >> dice_draw(&d, 64);
		unsigned step = 0;

		bytes = bytes < PROFILE_MOST ? bytes : PROFILE_MOST;
		feed(p, &names[0], bytes);
		while (!profile_histogram(profile_find(p, &names[0]), PROFILE_PRIVATE)[step])
			step++;
		cr_assert_leq(profile_bucket_from(PROFILE_PRIVATE, step), bytes);
		cr_assert(step == PROFILE_BUCKETS - 1 ||
			  bytes < profile_bucket_from(PROFILE_PRIVATE, step + 1));
		profile_free(p);
	}
}

Test(profile, crc32c_is_castagnolis)
{
	cr_assert_eq(crc32c("123456789", 9), 0xe3069283u);
	cr_assert_eq(crc32c("", 0), 0);
}

Test(profile, words_of_the_configuration)
{
	struct profile_choice c;

	cr_assert(profile_choice_read("histogram:0.05", &c) && c.strategy == PROFILE_HISTOGRAM &&
		  c.eps_ppm == 50000);
	cr_assert(profile_choice_read("histogram:0.0000001", &c) && c.eps_ppm == 1);
	cr_assert(profile_choice_read("histogram", &c) && c.eps_ppm == PROFILE_EPS_PPM);
	cr_assert(profile_choice_read("histogram:1", &c) && c.eps_ppm == 1000000);
	cr_assert_not(profile_choice_read("histogram:1.01", &c));
	cr_assert_not(profile_choice_read("histogram:99999999999", &c));
	cr_assert_not(profile_choice_read("histogram:", &c));
	cr_assert_not(profile_choice_read("histogram:.", &c));
	cr_assert_not(profile_choice_read("peak", &c));
	cr_assert(profile_choice_read("adaptive", &c) && c.strategy == PROFILE_PEAK && c.adaptive);
	cr_assert(profile_choice_read("conservative", &c) && c.strategy == PROFILE_PEAK &&
		  !c.adaptive);
}
