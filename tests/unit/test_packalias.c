/* SPDX-License-Identifier: Apache-2.0 */
/* Several keys of one packed object: by adoption under another key, and by a
 * put of what a view shows. */
#include <errno.h>

#include "dice.h"
#include "packlook.h"
#include "packs.h"
#include "packsegs.h"
#include "segrescue.h"

/* Puts what the view shows under one more key. */
static int put_again(struct shms_pack *p, const struct shms_pack_view *v, const char *key,
		     bool replace)
{
	struct iovec iov = {(void *)(uintptr_t)(v->segment->bytes + v->object.extent_off),
			    v->object.buffer_size};
	struct shms_segobject what = {key, strlen(key), "header", 6, &iov, 1, 0, NULL};

	return shms_pack_alias(p, &what, replace, NOW, UINT64_MAX);
}

static int alias(struct shms_pack *p, const char *from, const char *key, bool replace)
{
	struct shms_pack_view v;
	int r = shms_pack_get(p, from, strlen(from), &v);

	if (r < 0)
		return r;
	r = put_again(p, &v, key, replace);
	shms_pack_unget(p, &v, NOW);
	return r;
}

/* Do both keys mean one place? */
static bool is_one(struct shms_pack *p, const char *a, const char *b)
{
	struct shms_pack_view x, y;
	bool one;

	ENSURE(shms_pack_get(p, a, strlen(a), &x) == 0 && shms_pack_get(p, b, strlen(b), &y) == 0);
	one = x.number == y.number && x.slot == y.slot;
	shms_pack_unget(p, &x, NOW);
	shms_pack_unget(p, &y, NOW);
	return one;
}

static int count_key(const struct shms_packlook *o, void *arg)
{
	char(*keys)[64] = arg;

	for (size_t i = 0; i < 8; i++) {
		if (keys[i][0])
			continue;
		memcpy(keys[i], o->key, o->key_size < 63 ? o->key_size : 63);
		break;
	}
	return 0;
}

/* Is that what a process without a place sees: the keys, in any order? */
static bool sees(struct shms_pack *p, const char *const *keys, size_t n)
{
	char seen[8][64] = {{0}};
	size_t n_seen = 0;

	ENSURE(shms_packlook(p->options.dir_fd, p->options.uuid, NULL, 0, count_key, seen) == 0);
	while (n_seen < 8 && seen[n_seen][0])
		n_seen++;
	for (size_t i = 0; i < n; i++) {
		size_t k = 0;

		while (k < n_seen && strcmp(seen[k], keys[i]) != 0)
			k++;
		if (k == n_seen)
			return false;
	}
	return n_seen == n;
}

static int find_one(const struct shms_packlook *o, void *arg)
{
	*(size_t *)arg = o->object.buffer_size;
	return pattern_check(o->copy, o->object.buffer_size, 1) == o->object.buffer_size ? 1
											 : -EBADMSG;
}

static const char LONG[] = "a key that does not fit into a slot";

static bool is_unused(const struct shms_pack *p)
{
	bool unused =
		p->index.n == 0 && p->sum.bytes == 0 && !p->aliases.aliases && !p->aliases.objects;

	for (uint32_t i = 0; i < p->n_segments; i++)
		unused = unused &&
			 (!p->segments[i].own || shms_segown_unused(p->segments[i].own, NOW));
	return unused;
}

Test(packalias, one_object_by_several_keys)
{
	struct shms_pack *p = open_pack("a", true);
	struct shms_pack_view v;
	size_t found = 0;

	cr_assert_eq(put(p, "k", 70000, 1, false), 0);
	cr_assert_eq(put(p, "other", 70000, 2, false), 0);
	cr_assert_eq(alias(p, "k", "second", false), 0);
	cr_assert_eq(alias(p, "second", LONG, false), 0);
	cr_assert(is_one(p, "k", "second") && is_one(p, "k", LONG) && !is_one(p, "k", "other"));
	cr_assert_eq(alias(p, "k", "other", false), -EEXIST);
	cr_assert_eq(alias(p, "k", "k", false), -EEXIST);
	cr_assert_eq(alias(p, "k", "k", true), 0);
	cr_assert_eq(shms_pack_sum(p).n, 4);
	cr_assert(sees(p, (const char *[]){"k", "second", LONG, "other"}, 4));
	cr_assert_eq(shms_packlook(p->options.dir_fd, p->options.uuid, LONG, strlen(LONG), find_one,
				   &found),
		     1);
	cr_assert_eq(found, 70000);
	/* Its own key goes, the others stay, and the key may mean something else. */
	cr_assert_eq(drop(p, "k"), 0);
	cr_assert_not(has(p, "k", 70000, 1));
	cr_assert(sees(p, (const char *[]){"second", LONG, "other"}, 3));
	cr_assert_eq(put(p, "k", 10, 3, false), 0);
	cr_assert(has(p, "second", 70000, 1) && has(p, LONG, 70000, 1) && has(p, "k", 10, 3));
	/* A key comes back to the object that it was of. */
	cr_assert_eq(alias(p, "second", "k", true), 0);
	cr_assert(is_one(p, "k", LONG));
	/* The one that says "instead" goes before the others. */
	cr_assert_eq(drop(p, "second"), 0);
	cr_assert(sees(p, (const char *[]){"k", LONG, "other"}, 3));
	cr_assert_eq(put(p, LONG, 20, 4, true), 0);
	cr_assert(has(p, "k", 70000, 1) && has(p, LONG, 20, 4));
	cr_assert_eq(shms_pack_get(p, "k", 1, &v), 0);
	cr_assert_eq(drop(p, "k"), 0);
	cr_assert(is(&v, 70000, 1));
	cr_assert_eq(put_again(p, &v, "late", false), -ENOENT); /* nothing has it by name */
	shms_pack_unget(p, &v, NOW);
	cr_assert(drop(p, LONG) == 0 && drop(p, "other") == 0);
	cr_assert(is_unused(p));
	close_pack(p);
}

Test(packalias, only_all_of_an_object_gets_a_key)
{
	struct shms_pack *p = open_pack("a", false);
	struct shms_pack_view v;
	struct iovec iov;
	struct shms_segobject what = {"new", 3, "header", 6, &iov, 1, 0, NULL};
	uint8_t *bytes;

	cr_assert_eq(put(p, "k", 70000, 1, false), 0);
	cr_assert_eq(shms_pack_get(p, "k", 1, &v), 0);
	bytes = (uint8_t *)(uintptr_t)(v.segment->bytes + v.object.extent_off);
	iov = (struct iovec){bytes, 69999};
	cr_assert_eq(shms_pack_alias(p, &what, false, NOW, UINT64_MAX), -ENOENT);
	iov = (struct iovec){bytes + 64, 69936};
	cr_assert_eq(shms_pack_alias(p, &what, false, NOW, UINT64_MAX), -ENOENT);
	iov = (struct iovec){bytes, 70000};
	what.metadata = "HEADER";
	cr_assert_eq(shms_pack_alias(p, &what, false, NOW, UINT64_MAX), -ENOENT);
	what.metadata = "header";
	what.flags = SHMS_SEGPACKED_CHECKSUM; /* it has none */
	cr_assert_eq(shms_pack_alias(p, &what, false, NOW, UINT64_MAX), -ENOENT);
	what.flags = 0;
	/* No memory for its slot may be taken. */
	cr_assert_eq(shms_pack_alias(p, &what, false, NOW, 0), -ENOSPC);
	cr_assert_eq(shms_pack_alias(p, &what, false, NOW, UINT64_MAX), 0);
	cr_assert(is_one(p, "k", "new"));
	shms_pack_unget(p, &v, NOW);
	close_pack(p);
}

Test(packalias, adopted_under_another_key)
{
	struct shms_pack *a = open_pack("a", true), *b = open_pack("b", true);
	char path[4][SHMS_PACK_TICKET];

	cr_assert_eq(put(a, "k", 100, 1, false), 0);
	for (int i = 0; i < 4; i++)
		cr_assert_eq(hand_off(a, "k", path[i]), 0);
	cr_assert_eq(adopt(b, path[0], "b's", false), 0);
	cr_assert(has(b, "b's", 100, 1) && !has(b, "k", 100, 1));
	cr_assert(sees(b, (const char *[]){"b's"}, 1));
	/* Its own key comes later, as one more alias. */
	cr_assert_eq(adopt(b, path[1], "k", false), 0);
	cr_assert(is_one(b, "k", "b's"));
	cr_assert_eq(adopt(b, path[1], "third", false), -ESTALE);
	cr_assert_eq(shms_pack_sum(b).n, 2);
	cr_assert_eq(drop(a, "k"), 0);
	cr_assert(has(b, "b's", 100, 1));
	close_pack(b);
	b = open_pack("b", true);
	cr_assert(sees(b, (const char *[]){"b's", "k"}, 2));
	cr_assert(is_one(b, "k", "b's"));
	/* A handoff under any of its keys hands on the object. */
	cr_assert_eq(hand_off(b, "b's", path[0]), 0);
	cr_assert_eq(adopt(a, path[0], "back", false), 0);
	cr_assert(has(a, "back", 100, 1));
	cr_assert(drop(b, "b's") == 0 && drop(b, "k") == 0);
	cr_assert(has(a, "back", 100, 1));
	cr_assert_eq(drop(a, "back"), 0);
	cr_assert(is_unused(b));
	close_pack(a);
	close_pack(b);
}

static struct shms_packalias_bytes *alias_bytes(struct shms_pack *p, struct shms_packplace place)
{
	const struct shms_segment *g = &p->segments[place.segment].file->segment;
	struct shms_segslot slot = shms_segslot_at(g, place.slot);
	struct shms_segpacked o;

	ENSURE(shms_segpacked_read(g, &slot, &o) == 0);
	return (struct shms_packalias_bytes *)(void *)(g->books + o.extent_off);
}

/* The place of the key, which may be an alias's. */
static struct shms_packplace place_of(struct shms_pack *p, const char *key)
{
	const struct shms_packhashed k = shms_packhash(key, strlen(key));
	struct shms_packplace place = {0};

	ENSURE(shms_pack_find(p, &k, &place));
	return place;
}

/* Each of the states that a kill leaves between two steps (packalias.c). */
Test(packalias, kept_store_was_killed_between)
{
	struct shms_pack *a = open_pack("a", true);

	cr_assert_eq(put(a, "k", 100, 1, false), 0);
	/* The alias was made, and the object did not become the store's: as if
	 * the bit had not been set. */
	cr_assert_eq(alias(a, "k", "lost", false), 0);
	alias_bytes(a, place_of(a, "lost"))->generation++;
	/* The key was given to the others twice. */
	cr_assert_eq(put(a, "l", 100, 2, false), 0);
	cr_assert_eq(alias(a, "l", "one", false), 0);
	cr_assert_eq(alias(a, "l", "two", false), 0);
	cr_assert_eq(drop(a, "l"), 0);
	for (int i = 0; i < 2; i++) {
		struct shms_packplace second = place_of(a, i ? "one" : "two");
		struct shms_segslot slot =
			shms_packseg_slot(&a->segments[second.segment], second.slot);

		shms_segpacked_flag(&slot, SHMS_SEGPACKED_INSTEAD, true);
	}
	close_pack(a);
	a = open_pack("a", true);
	cr_assert(has(a, "k", 100, 1) && !shms_pack_has(a, "lost", 4) && !shms_pack_has(a, "l", 1));
	cr_assert(is_one(a, "one", "two"));
	cr_assert_eq(shms_pack_sum(a).n, 3);
	cr_assert_eq(drop(a, "two"), 0);
	cr_assert(has(a, "one", 100, 2));
	cr_assert(drop(a, "one") == 0 && drop(a, "k") == 0);
	cr_assert(is_unused(a));
	close_pack(a);
}

/* Of each step that takes a store apart, and is killed after any segment: no key that
 * was deleted is there again. */
Test(packalias, taken_apart_in_part)
{
	for (int first = 0; first < 2; first++) {
		struct shms_pack *p = open_pack("a", true);
		char names[2][SHMS_SEGFILE_NAME];
		uint8_t uuid[16] = "a";
		struct shms_segrescued done;
		int dir;

		cr_assert_eq(put(p, "small", 100, 1, false), 0);
		cr_assert_eq(put(p, "k", 70000, 2, false), 0);
		cr_assert_eq(alias(p, "k", "second", false), 0);
		cr_assert_eq(alias(p, "small", "third", false), 0);
		cr_assert(drop(p, "k") == 0 && drop(p, "small") == 0);
		cr_assert_eq(p->n_segments, 2);
		for (int i = 0; i < 2; i++)
			memcpy(names[i], p->segments[i].file->name, sizeof(names[i]));
		dir = dup(p->options.dir_fd);
		close_pack(p);
		for (int i = 0; i < 2; i++) {
			cr_assert_eq(shms_segrescue_forget(dir, names[i ^ first], uuid), 0);
			p = open_pack("a", true);
			cr_assert(!shms_pack_has(p, "k", 1) && !shms_pack_has(p, "small", 5));
			cr_assert_eq(has(p, "second", 70000, 2), i == 0 && first == 0);
			cr_assert_eq(has(p, "third", 100, 1), i == 0 && first == 1);
			close_pack(p);
		}
		cr_assert_eq(shms_segrescue_unlink(dir, names[first], uuid, NOW, false, &done), 0);
		p = open_pack("a", true);
		cr_assert(p->index.n == 0 && !p->aliases.objects);
		close_pack(p);
		cr_assert_eq(shms_segrescue_unlink(dir, names[1 - first], uuid, NOW, false, &done),
			     0);
		close(dir);
	}
}

#define KEYS 12

/* Two kept stores, and what each key of theirs should mean: the seed of its object; 0: nothing. */
struct twins {
	struct shms_pack *p[2];
	uint64_t content[2][KEYS];
};

/* One step at store w, with two of the keys. i: the seed of what is put. */
static void step(struct twins *t, struct dice *d, uint64_t i)
{
	static const char *const names[] = {"a", "b"};
	size_t w = dice_draw(d, 2), from = dice_draw(d, KEYS), to = dice_draw(d, KEYS);
	bool replace = dice_draw(d, 2), fits = replace || !t->content[w][to];
	char key[2][16], path[SHMS_PACK_TICKET];
	uint64_t *now = t->content[w];

	snprintf(key[0], sizeof(key[0]), "%zu", from);
	snprintf(key[1], sizeof(key[1]), "%zu", to);
	switch (dice_draw(d, 6)) {
	case 0:
		cr_assert_eq(put(t->p[w], key[1], 100, i, replace), fits ? 0 : -EEXIST);
		now[to] = fits ? i : now[to];
		break;
	case 1:
		cr_assert_eq(alias(t->p[w], key[0], key[1], replace), !now[from] ? -ENOENT
								      : fits     ? 0
										 : -EEXIST);
		now[to] = now[from] && fits ? now[from] : now[to];
		break;
	case 2:
		if (!t->content[1 - w][from] || !fits)
			break;
		cr_assert_eq(hand_off(t->p[1 - w], key[0], path), 0);
		cr_assert_eq(adopt(t->p[w], path, key[1], replace), 0);
		now[to] = t->content[1 - w][from];
		break;
	case 3:
		close_pack(t->p[w]);
		t->p[w] = open_pack(names[w], true);
		break;
	default:
		cr_assert_eq(drop(t->p[w], key[1]), now[to] ? 0 : -ENOENT);
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
		cr_assert_eq(has(t->p[k % 2], key, 100, content), content != 0, "seed %lu, %lu: %s",
			     seed, i, key);
	}
}

static void end(struct twins *t, uint64_t seed)
{
	char key[16];

	for (size_t k = 0; k < 2 * (size_t)KEYS; k++) {
		snprintf(key, sizeof(key), "%zu", k / 2);
		cr_assert_eq(drop(t->p[k % 2], key), t->content[k % 2][k / 2] ? 0 : -ENOENT);
	}
	for (size_t w = 0; w < 2; w++) {
		cr_assert(is_unused(t->p[w]), "seed %lu", seed);
		close_pack(t->p[w]);
	}
}

Test(packalias, random_histories)
{
	uint64_t first, n = dice_seeds(n_rounds(30), &first);

	for (uint64_t seed = first; seed < first + n; seed++) {
		struct twins t = {.p = {open_pack("a", true), open_pack("b", true)}};
		struct dice d = {.state = seed};

		for (uint64_t i = 1; i <= 400; i++) {
			step(&t, &d, i);
			check(&t, seed, i);
		}
		end(&t, seed);
	}
}
