/* SPDX-License-Identifier: Apache-2.0 */
/* Several keys of one packed object, as programs see them. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "api.h"
#include "dice.h"

static struct shmstore *open_store(unsigned flags)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s = NULL;

	o.pack_max = UINT64_C(1) << 20;
	o.flags = flags;
	cr_assert_eq(shmstore_open(scratch_partition(), "a", &o, &s), 0);
	return s;
}

struct asked {
	const char *key;
	struct shmstore_object_info info;
};

static int find_info(const struct shmstore_object_info *info, void *arg)
{
	struct asked *a = arg;

	if (info->key_size != strlen(a->key) || memcmp(info->key, a->key, info->key_size) != 0)
		return 0;
	a->info = *info;
	return 1;
}

static struct shmstore_object_info info_of(struct shmstore *s, const char *key)
{
	struct asked a = {.key = key};

	cr_assert_eq(shmstore_foreach(s, find_info, &a), 1, "%s", key);
	return a.info;
}

/* A put of what a view shows; header: the object's. */
static int put_view(struct shmstore *s, const struct shmstore_view *v, const char *key,
		    unsigned flags)
{
	struct iovec iov;
	size_t header_size;
	const void *header = shmstore_view_header(v, &header_size);

	iov.iov_base = shmstore_view_buffer(v, 0, &iov.iov_len);
	return shmstore_put(s, KEY(key), header, header_size, &iov, 1, flags);
}

/* Is it one object? */
static bool is_one(struct shmstore *s, const char *a, const char *b)
{
	const struct shmstore_object_info x = info_of(s, a), y = info_of(s, b);

	return x.generation == y.generation && x.inode == y.inode && !x.packed && !y.packed;
}

static int alias(struct shmstore *s, const char *from, const char *key, unsigned flags)
{
	struct shmstore_view *v;
	int r = shmstore_get(s, KEY(from), 0, &v);

	if (r < 0)
		return r;
	r = put_view(s, v, key, flags);
	shmstore_view_unref(v);
	return r;
}

Test(packed_keys, what_a_view_shows_gets_one_more_key)
{
	struct shmstore *s = open_store(0), *look;
	struct shmstore_view *v;
	uint64_t generation;

	cr_assert_eq(put_pattern(s, "k", 100000, 1, 0), 0);
	cr_assert(info_of(s, "k").packed);
	generation = info_of(s, "k").generation;
	v = get_view(s, "k", 0);
	cr_assert_eq(put_view(s, v, "k", 0), -EEXIST);
	cr_assert(info_of(s, "k").packed);
	cr_assert_eq(put_view(s, v, "second", 0), 0);
	cr_assert_eq(put_view(s, v, "second", 0), -EEXIST);
	/* The view shows the slot still, and the object is a file. */
	cr_assert_eq(view_pattern(v, 100000, 1), 0);
	cr_assert_eq(put_view(s, v, "third", 0), 0);
	cr_assert(is_one(s, "k", "second") && is_one(s, "k", "third"));
	cr_assert_eq(info_of(s, "k").generation, generation);
	cr_assert(info_of(s, "k").links == 3 && info_of(s, "second").links == 3);
	cr_assert_eq(put_view(s, v, "sum", SHMSTORE_CHECKSUM), 0); /* a copy: the object has none */
	cr_assert_neq(info_of(s, "sum").generation, generation);
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_delete(s, KEY("third")), 0);
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	cr_assert_eq(info_of(s, "second").links, 1);
	ensure_books_close();
	look = open_store(SHMSTORE_OPEN_READONLY);
	cr_assert(get_pattern(look, "second", 100000, 1) == 0 &&
		  get_pattern(s, "second", 100000, 1) == 0);
	cr_assert_eq(shmstore_contains(look, KEY("k")), 0);
	cr_assert_eq(count_objects(look), 2);
	cr_assert_eq(shmstore_close(look), 0);
	cr_assert_eq(shmstore_pin(s, KEY("second"), true), 0);
	cr_assert_eq(get_pattern(s, "second", 100000, 1), 0);
	ensure_books_close();
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(packed_keys, keys_of_one_object_come_and_go)
{
	struct shmstore *s = open_store(0);

	cr_assert_eq(put_pattern(s, "k", 70000, 1, 0), 0);
	cr_assert_eq(put_pattern(s, "other", 70000, 2, 0), 0);
	cr_assert_eq(alias(s, "k", "second", 0), 0);
	cr_assert_eq(alias(s, "second", "a key that does not fit into a slot", 0), 0);
	cr_assert_eq(alias(s, "k", "other", 0), -EEXIST);
	cr_assert_eq(alias(s, "other", "other", SHMSTORE_REPLACE), 0);
	cr_assert_eq(count_objects(s), 4);
	/* Its own key goes, the others stay, and the key may mean something else. */
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	cr_assert_eq(shmstore_contains(s, KEY("k")), 0);
	cr_assert_eq(put_pattern(s, "k", 10, 3, 0), 0);
	cr_assert(get_pattern(s, "second", 70000, 1) == 0 && get_pattern(s, "k", 10, 3) == 0);
	/* A key comes back to the object that it was of. */
	cr_assert_eq(alias(s, "second", "k", SHMSTORE_REPLACE), 0);
	cr_assert(is_one(s, "k", "second"));
	cr_assert_eq(shmstore_delete(s, KEY("second")), 0);
	cr_assert_eq(get_pattern(s, "k", 70000, 1), 0);
	ensure_books_close();
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(packed_keys, only_all_of_an_object_gets_a_key)
{
	struct shmstore *s = open_store(0);
	struct shmstore_view *v;
	struct iovec iov;
	size_t header_size;
	const void *header;
	uint64_t generation;

	cr_assert_eq(put_pattern(s, "k", 70000, 1, 0), 0);
	generation = info_of(s, "k").generation;
	v = get_view(s, "k", 0);
	header = shmstore_view_header(v, &header_size);
	iov.iov_base = shmstore_view_buffer(v, 0, &iov.iov_len);
	iov.iov_len--;
	cr_assert_eq(shmstore_put(s, KEY("a"), header, header_size, &iov, 1, 0), 0);
	iov.iov_base = (char *)iov.iov_base + 64;
	iov.iov_len -= 63;
	cr_assert_eq(shmstore_put(s, KEY("b"), header, header_size, &iov, 1, 0), 0);
	iov.iov_base = shmstore_view_buffer(v, 0, &iov.iov_len);
	cr_assert_eq(shmstore_put(s, KEY("c"), "HEADER", 6, &iov, 1, 0), 0);
	shmstore_view_unref(v);
	cr_assert(info_of(s, "k").packed && info_of(s, "k").generation == generation);
	for (size_t i = 0; i < 3; i++)
		cr_assert_neq(info_of(s, (const char *[]){"a", "b", "c"}[i]).generation,
			      generation);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(packed_keys, under_another_key_a_ticket_is_copied)
{
	struct shmstore *a = packing_store("a", UINT64_C(1) << 20, false);
	struct shmstore *b = packing_store("b", UINT64_C(1) << 20, false);
	struct shmstore_ticket t;

	cr_assert_eq(put_pattern(a, "k", 100, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(a, KEY("k"), 60000, &t), 0);
	cr_assert_eq(shmstore_adopt(b, KEY("another_key"), &t, 0), 0);
	cr_assert_eq(shmstore_adopt(b, KEY("third"), &t, 0), -ESTALE);
	cr_assert_eq(shmstore_handoff(a, KEY("k"), 60000, &t), 0);
	cr_assert_eq(shmstore_adopt(b, KEY("k"), &t, 0), 0);
	cr_assert_eq(info_of(b, "k").generation, info_of(a, "k").generation);
	cr_assert_neq(info_of(b, "another_key").generation, info_of(a, "k").generation);
	cr_assert_eq(shmstore_delete(a, KEY("k")), 0);
	cr_assert(get_pattern(b, "k", 100, 1) == 0 && get_pattern(b, "another_key", 100, 1) == 0);
	/* A handoff under any of its keys hands on the object. */
	cr_assert_eq(shmstore_handoff(b, KEY("another_key"), 60000, &t), 0);
	cr_assert_eq(shmstore_adopt(a, KEY("back"), &t, 0), 0);
	cr_assert_eq(shmstore_delete(b, KEY("another_key")), 0);
	cr_assert_eq(get_pattern(a, "back", 100, 1), 0);
	ensure_books_close();
	cr_assert(shmstore_close(a) == 0 && shmstore_close(b) == 0);
	ensure_nothing_left();
}

#define KEYS 8
#define SIZE 66000

/* Two kept stores, and what each key of theirs should mean: the seed of its object; 0: nothing. */
struct twins {
	struct shmstore *s[2];
	uint64_t content[2][KEYS];
};

/* One step at store w, with two of the keys. i: the seed of what is put. */
static void step(struct twins *t, struct dice *d, uint64_t i)
{
	static const char *const names[] = {"a", "b"};
	size_t w = dice_draw(d, 2), from = dice_draw(d, KEYS), to = dice_draw(d, KEYS);
	bool replace = dice_draw(d, 2), fits = replace || !t->content[w][to];
	unsigned flags = replace ? SHMSTORE_REPLACE : 0;
	uint64_t *now = t->content[w];
	struct shmstore_ticket ticket;
	char key[2][16];

	snprintf(key[0], sizeof(key[0]), "%zu", from);
	snprintf(key[1], sizeof(key[1]), "%zu", to);
	switch (dice_draw(d, 6)) {
	case 0:
		cr_assert_eq(put_pattern(t->s[w], key[1], SIZE, i, flags), fits ? 0 : -EEXIST);
		now[to] = fits ? i : now[to];
		break;
	case 1:
		cr_assert_eq(alias(t->s[w], key[0], key[1], flags), !now[from] ? -ENOENT
								    : fits     ? 0
									       : -EEXIST);
		now[to] = now[from] && fits ? now[from] : now[to];
		break;
	case 2:
		if (!t->content[1 - w][from] || !fits)
			break;
		cr_assert_eq(shmstore_handoff(t->s[1 - w], KEY(key[0]), 60000, &ticket), 0);
		cr_assert_eq(shmstore_adopt(t->s[w], KEY(key[1]), &ticket, flags), 0);
		now[to] = t->content[1 - w][from];
		break;
	case 3:
		cr_assert_eq(shmstore_close(t->s[w]), 0);
		t->s[w] = packing_store(names[w], UINT64_C(1) << 20, true);
		break;
	default:
		cr_assert_eq(shmstore_delete(t->s[w], KEY(key[1])), now[to] ? 0 : -ENOENT);
		now[to] = 0;
		break;
	}
}

static void check(const struct twins *t, uint64_t seed, uint64_t i)
{
	char key[16];

	for (size_t k = 0; k < 2 * (size_t)KEYS; k++) {
		uint64_t content = t->content[k % 2][k / 2];

		snprintf(key, sizeof(key), "%zu", k / 2);
		cr_assert_eq(get_pattern(t->s[k % 2], key, SIZE, content), content ? 0 : -ENOENT,
			     "seed %lu, %lu: %s", seed, i, key);
	}
}

static void end(struct twins *t)
{
	char key[16];

	for (size_t w = 0; w < 2; w++) {
		for (size_t k = 0; k < KEYS; k++) {
			snprintf(key, sizeof(key), "%zu", k);
			cr_assert_eq(shmstore_delete(t->s[w], KEY(key)),
				     t->content[w][k] ? 0 : -ENOENT);
		}
	}
	ensure_books_close();
	for (size_t w = 0; w < 2; w++)
		cr_assert_eq(shmstore_close(t->s[w]), 0);
}

Test(packed_keys, random_histories, .timeout = 120)
{
	uint64_t first, n = dice_seeds(6, &first);

	for (uint64_t seed = first; seed < first + n; seed++) {
		struct twins t = {.s = {packing_store("a", UINT64_C(1) << 20, true),
					packing_store("b", UINT64_C(1) << 20, true)}};
		struct dice d = {.state = seed};

		for (uint64_t i = 1; i <= 200; i++) {
			step(&t, &d, i);
			check(&t, seed, i);
		}
		end(&t);
	}
}
