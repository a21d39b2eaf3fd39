/* SPDX-License-Identifier: Apache-2.0 */
/* The index of packed objects, and the counts of their views, beside plain arrays of the same. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "api.h"
#include "dice.h"
#include "packindex.h"

#define KEYS  3000u
#define STEPS 60000u

/* Key i is the number i, at a place that is its own. */
static struct shms_packplace place_of(uint32_t i)
{
	return (struct shms_packplace){i % SHMS_PACKINDEX_SEGMENTS, i * 21 % SHMS_PACKINDEX_SLOTS};
}

/* Spread as those of keys are. */
static uint64_t hash_of_number(uint32_t i)
{
	struct dice d = {i};

	return dice_bits(&d);
}

/* Every eighth shares a line with the others, and a third of those their tag, too. */
static uint64_t bad_hash(uint32_t i)
{
	return i % 8 ? hash_of_number(i) : (uint64_t)(i % 3) << 56;
}

static bool is_number(const struct shms_packplace *place, const struct shms_packhashed *key,
		      void *arg)
{
	struct shms_packplace of = place_of(*(const uint32_t *)key->key);

	(void)arg;
	return place->segment == of.segment && place->slot == of.slot;
}

static void hashes_at(const struct shms_packplace *places, uint32_t n, uint64_t *ret, void *arg)
{
	const uint32_t *numbers = arg;

	for (uint32_t i = 0; i < n; i++)
		ret[i] = hash_of_number(
			numbers[places[i].segment * SHMS_PACKINDEX_SLOTS + places[i].slot]);
}

static void bad_hashes_at(const struct shms_packplace *places, uint32_t n, uint64_t *ret, void *arg)
{
	const uint32_t *numbers = arg;

	for (uint32_t i = 0; i < n; i++)
		ret[i] = bad_hash(
			numbers[places[i].segment * SHMS_PACKINDEX_SLOTS + places[i].slot]);
}

/* Makes room for one more cell. */
static void reserve(struct shms_packindex *x, shms_packindex_hashes *hashes, void *arg)
{
	uint32_t n = shms_packindex_wants(x);
	struct shms_packline *old = x->lines, *lines;

	if (!n)
		return;
	lines = aligned_alloc(64, n * sizeof(*lines));
	ENSURE(lines);
	memset(lines, 0, n * sizeof(*lines));
	shms_packindex_move(x, lines, n, hashes, arg);
	free(old);
}

Test(packindex, finds_what_is_there_and_nothing_else)
{
	uint32_t *numbers =
		calloc((size_t)SHMS_PACKINDEX_SEGMENTS * SHMS_PACKINDEX_SLOTS, sizeof(*numbers));
	static bool held[KEYS];
	struct shms_packindex x = {0};
	struct shms_packplace place, of;
	struct dice d = {1};
	uint32_t n = 0, at = 0;

	for (uint32_t i = 0; i < KEYS; i++)
		numbers[place_of(i).segment * SHMS_PACKINDEX_SLOTS + place_of(i).slot] = i;
	for (uint32_t step = 0; step < STEPS; step++) {
		uint32_t i = (uint32_t)dice_draw(&d, KEYS), k = (uint32_t)dice_draw(&d, KEYS);
		struct shms_packhashed key = {.key = &k, .size = sizeof(k), .hash = bad_hash(k)};
		/* First it fills, and at the end it gets empty. */
		bool add = dice_draw(&d, STEPS) > step;

		if (add && !held[i]) {
			reserve(&x, bad_hashes_at, numbers);
			shms_packindex_add(&x, bad_hash(i), place_of(i));
			held[i] = true;
			n++;
		} else if (!add) {
			cr_assert_eq(shms_packindex_drop(&x, bad_hash(i), place_of(i)), held[i]);
			n -= held[i];
			held[i] = false;
		}
		cr_assert_eq(x.n, n);
		cr_assert_eq(shms_packindex_find(&x, &key, is_number, NULL, &place), held[k],
			     "%u after %u", k, step);
		of = place_of(k);
		cr_assert(!held[k] || (place.segment == of.segment && place.slot == of.slot));
	}
	for (; shms_packindex_next(&x, &at, &place); n--) {
		uint32_t i = numbers[place.segment * SHMS_PACKINDEX_SLOTS + place.slot];

		cr_assert(held[i]);
		held[i] = false;
	}
	cr_assert_eq(n, 0);
	free(x.lines);
	free(numbers);
}

struct changing {
	struct shms_packindex *x;
	uint32_t number;
	bool replaces;
};

/* It is another object's by now, which the owner says by a cell that went or changed. */
static int change(struct shms_packplace place, const struct shms_packhashed *key, void *arg)
{
	struct changing *c = arg;

	if (c->replaces)
		shms_packindex_replace(c->x, key->hash, place, place_of(++c->number));
	else
		shms_packindex_drop(c->x, key->hash, place);
	return 0;
}

Test(packindex, a_search_of_a_line_that_changed_says_so)
{
	struct shms_packindex x = {0};
	struct changing c = {.x = &x, .number = 7};
	struct shms_packhashed key = {.hash = hash_of_number(7)};

	reserve(&x, hashes_at, NULL);
	cr_assert_eq(shms_packindex_look(&x, &key, change, &c), 0);
	shms_packindex_add(&x, key.hash, place_of(7));
	c.replaces = true;
	for (unsigned i = 0; i < 3; i++)
		cr_assert_eq(shms_packindex_look(&x, &key, change, &c), -EAGAIN);
	c.replaces = false;
	cr_assert_eq(shms_packindex_look(&x, &key, change, &c), -EAGAIN);
	cr_assert_eq(shms_packindex_look(&x, &key, change, &c), 0);
	free(x.lines);
}

Test(packindex, keys_that_fit_into_a_slot_are_told_apart)
{
	static const char text[32] = "abcdefghabcdefghabcdefghabcdefg";

	for (size_t size = 0; size <= 17; size++) {
		struct shms_packhashed key = shms_packhash(text, size),
				       shorter = shms_packhash(text, size ? size - 1 : 1);
		unsigned char words[16] = {0};

		memcpy(words, text, size <= 16 ? size : 0);
		cr_assert_eq(memcmp(key.words, words, sizeof(words)), 0, "%zu", size);
		cr_assert_neq(key.hash, shorter.hash, "%zu", size);
		cr_assert_eq(key.hash, shms_packhash(text + (size <= 16 ? 8 : 0), size).hash, "%zu",
			     size);
		cr_assert(size > 16 || key.hash == shms_packhash_words(key.words, size), "%zu",
			  size);
	}
	/* A zero at the end is a byte of the key. */
	cr_assert_neq(shms_packhash("a\0", 1).hash, shms_packhash("a\0", 2).hash);
}

Test(packindex, an_object_takes_little_more_than_six_bytes_at_most)
{
	struct shms_packindex x = {0};
	uint32_t *numbers =
		calloc((size_t)SHMS_PACKINDEX_SEGMENTS * SHMS_PACKINDEX_SLOTS, sizeof(*numbers));

	for (uint32_t i = 0; i < 200000; i++) {
		struct shms_packplace place = {i / 50000, i % 50000};

		numbers[place.segment * SHMS_PACKINDEX_SLOTS + place.slot] = i;
		reserve(&x, hashes_at, numbers);
		shms_packindex_add(&x, hash_of_number(i), place);
		/* 13 of 15 cells in use, or four fifths of that. Small ones grow by doubling. */
		cr_assert(x.n_lines <= 256 ||
				  x.n_lines * UINT64_C(64) < (i + 1) * UINT64_C(62) / 10,
			  "%u", i);
	}
	free(x.lines);
	free(numbers);
}

Test(packviews, counts_of_slots_that_have_any)
{
	static uint32_t views[KEYS];
	struct shms_packviews v = {0};
	struct shms_packplace place;
	struct dice d = {2};
	uint32_t n = 0, at = 0, most;

	for (uint32_t step = 0; step < STEPS; step++) {
		uint32_t i = (uint32_t)dice_draw(&d, KEYS), *has;
		bool add = dice_draw(&d, STEPS) > step;

		if (add) {
			cr_assert_eq(shms_packviews_reserve(&v), 0);
			has = shms_packviews_at(&v, place_of(i));
			cr_assert_eq(*has, views[i]);
			n += !views[i];
			*has = ++views[i];
		} else {
			shms_packviews_drop(&v, place_of(i));
			n -= views[i] != 0;
			views[i] = 0;
		}
		cr_assert_eq(v.n, n);
		i = (uint32_t)dice_draw(&d, KEYS);
		has = shms_packviews_find(&v, place_of(i));
		cr_assert_eq(has ? *has : 0, views[i], "%u after %u", i, step);
	}
	/* A slot that is dropped meanwhile hides no other. */
	while (shms_packviews_next(&v, &at, &place)) {
		n--;
		if (n % 2) {
			shms_packviews_drop(&v, place);
			at--;
		}
	}
	cr_assert_eq(n, 0);
	most = v.n_cells;
	for (uint32_t i = 0; i < KEYS; i++)
		shms_packviews_drop(&v, place_of(i));
	for (uint32_t i = 0; i < 16; i++)
		cr_assert_eq(shms_packviews_reserve(&v), 0);
	cr_assert(v.n == 0 && v.n_cells < most, "%u cells of %u", v.n_cells, most);
	shms_packviews_deinit(&v);
}
