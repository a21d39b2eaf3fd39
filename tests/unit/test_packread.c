/* SPDX-License-Identifier: Apache-2.0 */
/* Readers of a store's packed objects: by its index, in place, while the owner goes on. */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#include "pack.h"
#include "packs.h"
#include "packsegs.h"
#include "seglook.h"
#include "segments.h"
#include "segslot.h"

static struct shms_pack *reader_of(const struct shms_pack *p)
{
	struct shms_pack *r = NULL;

	cr_assert_eq(shms_packread_open(&p->options, NULL, &r), 0);
	return r;
}

static bool reads(struct shms_pack *r, const char *key, size_t size, uint64_t seed)
{
	struct shms_pack_view v;
	bool right;

	if (shms_packread_get(r, key, strlen(key), &v) < 0)
		return false;
	right = is(&v, size, seed);
	shms_pack_unget(v.pack, &v, 0);
	return right;
}

static int look(struct shms_pack *r, const char *key)
{
	int e = shms_packread_get(r, key, strlen(key), NULL);

	return e == 0 ? 1 : e == -ENOENT ? 0 : e;
}

static void number(char *key, uint32_t i)
{
	sprintf(key, i % 3 ? "%u" : "a key that does not fit into a slot, %u", i);
}

Test(packread, finds_what_the_owner_has_while_that_grows_and_shrinks)
{
	struct shms_pack *p = open_pack("a", false), *r = reader_of(p);
	char key[80];

	/* Before there is an index. */
	cr_assert_eq(look(r, "k"), -ENOTSUP);
	for (uint32_t i = 0; i < 3000; i++) {
		number(key, i);
		cr_assert_eq(put(p, key, i % 7 ? 100 : 20000, i, false), 0);
		cr_assert(reads(r, key, i % 7 ? 100 : 20000, i), "%u", i);
		number(key, 3000 + i);
		cr_assert_eq(look(r, key), 0);
	}
	for (uint32_t i = 0; i < 3000; i++) {
		number(key, i);
		if (i % 2)
			cr_assert_eq(drop(p, key), 0);
		else
			cr_assert_eq(put(p, key, 50, i + 1, true), 0);
	}
	for (uint32_t i = 0; i < 3000; i++) {
		number(key, i);
		cr_assert_eq(look(r, key), i % 2 == 0);
		cr_assert(i % 2 || reads(r, key, 50, i + 1));
	}
	shms_pack_close(r, 0);
	close_pack(p);
}

/* The slot's words of that view. */
static struct shms_segslot slot_of(const struct shms_pack *p, const struct shms_pack_view *v)
{
	return shms_packseg_slot(&p->segments[v->number], v->slot);
}

Test(packread, a_view_is_the_slot_and_keeps_it)
{
	struct shms_pack *p = open_pack("a", false), *r = reader_of(p);
	struct shms_pack_view v, again, own;
	struct shms_segslot slot;

	cr_assert_eq(put(p, "k", 1000, 1, false), 0);
	cr_assert_eq(shms_packread_get(r, "k", 1, &v), 0);
	cr_assert_eq(shms_packread_get(r, "k", 1, &again), 0);
	cr_assert_eq(shms_pack_get(p, "k", 1, &own), 0);
	/* Nothing is copied. */
	cr_assert_eq(v.slot, own.slot);
	cr_assert_eq(memcmp(v.segment->uuid, own.segment->uuid, 16), 0);
	shms_pack_unget(p, &own, NOW);
	slot = slot_of(p, &own);
	cr_assert_eq(drop(p, "k"), 0);
	for (uint64_t i = 0; i < 500; i++) {
		cr_assert_eq(put(p, "l", 1000, i, true), 0);
		cr_assert(is(&v, 1000, 1));
	}
	cr_assert_eq(look(r, "k"), 0);
	shms_pack_unget(v.pack, &v, 0);
	cr_assert(shms_segslot_held(&slot));
	shms_pack_unget(again.pack, &again, 0);
	cr_assert_not(shms_segslot_held(&slot));
	/* Now it is used again. */
	own.slot = UINT32_MAX;
	for (uint64_t i = 0; own.slot != v.slot; i++) {
		char key[20];

		cr_assert_lt(i, 5);
		snprintf(key, sizeof(key), "m%u", (unsigned)i);
		cr_assert_eq(put(p, key, 1000, 7, false), 0);
		cr_assert_eq(shms_pack_get(p, key, strlen(key), &own), 0);
		shms_pack_unget(p, &own, NOW);
	}
	shms_pack_close(r, 0);
	close_pack(p);
}

Test(packread, adopted_objects)
{
	struct shms_pack *a = open_pack("a", true), *b = open_pack("b", true), *r = reader_of(b);
	char path[SHMS_PACK_TICKET];

	cr_assert_eq(put(a, "k", 1000, 1, false), 0);
	cr_assert_eq(hand_off(a, "k", path), 0);
	cr_assert_eq(adopt(b, path, "another key than its own", false), -ENOTSUP);
	cr_assert_eq(adopt(b, path, "k", false), 0);
	cr_assert_eq(look(r, "another key than its own"), 0);
	cr_assert(reads(r, "k", 1000, 1));
	cr_assert_eq(drop(a, "k"), 0);
	cr_assert(reads(r, "k", 1000, 1));
	cr_assert_eq(drop(b, "k"), 0);
	cr_assert_eq(look(r, "k"), 0);
	shms_pack_close(r, 0);
	close_pack(b);
	close_pack(a);
}

struct seen {
	unsigned n[4000];
	struct shms_pack *p; /* its owner puts while it is listed */
	unsigned n_told;
};

static int tell(const struct shms_pack_view *v, uint64_t inode, uint64_t n_links, void *arg)
{
	struct seen *s = arg;
	size_t size = v->object.key_size;
	const char *begin = shms_pack_view_key(v), *digits = memrchr(begin, ' ', size);
	char text[80], key[80];

	cr_assert(inode && n_links == 1);
	digits = digits ? digits + 1 : begin;
	snprintf(text, sizeof(text), "%.*s", (int)(begin + size - digits), digits);
	s->n[atoi(text)]++;
	/* The index grows twice meanwhile, and each key gets another slot. */
	if (s->p && s->n_told < 2000) {
		number(key, s->n_told + 2000);
		cr_assert_eq(put(s->p, key, 60, 1, false), 0);
		number(key, s->n_told);
		cr_assert_eq(put(s->p, key, 60, 2, true), 0);
	}
	s->n_told++;
	return 0;
}

Test(packread, a_list_has_each_key_once_whatever_the_owner_does)
{
	struct shms_pack *p = open_pack("a", false), *r = reader_of(p);
	static struct seen s;
	uint64_t from = 0;
	char key[80];

	for (uint32_t i = 0; i < 2000; i++) {
		number(key, i);
		cr_assert_eq(put(p, key, 60, i, false), 0);
	}
	s.p = p;
	cr_assert_eq(shms_packread_each(r, &from, tell, &s), 0);
	cr_assert_eq(from, UINT64_C(1) << 32);
	for (uint32_t i = 0; i < 4000; i++)
		cr_assert(i < 2000 ? s.n[i] == 1 : s.n[i] <= 1, "%u: %u times", i, s.n[i]);
	shms_pack_close(r, 0);
	close_pack(p);
}

/* The last line overflows into the first, where a list begins: its first cells are of keys that are
 * not told yet. */
Test(packread, a_list_begins_in_a_line_that_has_only_cells_of_another)
{
	enum {
		N = SHMS_PACKINDEX_CELLS + 3
	};
	struct shms_pack *p = open_pack("a", false), *r = reader_of(p);
	static struct seen s;
	uint32_t keys[N], n = 0;
	uint64_t from = 0;

	for (uint32_t i = 0; n < N; i++) {
		char key[20];
		int size = snprintf(key, sizeof(key), "%u", i);

		cr_assert_lt(i, sizeof(s.n) / sizeof(*s.n));
		if ((uint32_t)shms_packhash(key, (size_t)size).hash >> 26 != 63)
			continue;
		cr_assert_eq(put(p, key, 60, i, false), 0);
		keys[n++] = i;
	}
	cr_assert_eq(shms_packread_each(r, &from, tell, &s), 0);
	cr_assert_eq(r->index.n_lines, 64);
	cr_assert_eq(s.n_told, N);
	for (uint32_t i = 0; i < N; i++)
		cr_assert_eq(s.n[keys[i]], 1);
	shms_pack_close(r, 0);
	close_pack(p);
}

/* Replaces two keys and comes and goes with others, for ever. */
static void replace(struct shms_pack *p)
{
	char key[80];

	for (uint64_t i = 1;; i++) {
		ENSURE(put(p, "k", 30 + i % 5 * 1000, i, true) == 0);
		ENSURE(put(p, "a long key, which is in the extent and not in the slot", 100, i,
			   true) == 0);
		number(key, (uint32_t)(i % 900));
		ENSURE(put(p, key, 10, i, true) == 0);
		number(key, (uint32_t)((i + 450) % 900));
		ENSURE(drop(p, key) == 0 || i <= 450);
	}
}

Test(packread, a_key_that_is_replaced_is_never_missing, .timeout = 60)
{
	struct shms_pack *p = open_pack("a", true), *r = reader_of(p);
	int ready[2];
	pid_t pid;
	char one;

	ENSURE(pipe(ready) == 0);
	cr_assert_eq(put(p, "k", 30, 0, false), 0);
	cr_assert_eq(
		put(p, "a long key, which is in the extent and not in the slot", 100, 0, false), 0);
	close_pack(p);
	pid = fork_bound(60);
	if (pid == 0) {
		p = open_pack("a", true);
		ENSURE(write(ready[1], "", 1) == 1);
		replace(p);
	}
	ENSURE(read(ready[0], &one, 1) == 1);
	for (unsigned i = 0; i < 200000; i++) {
		struct shms_pack_view v;
		const char *key =
			i % 2 ? "k" : "a long key, which is in the extent and not in the slot";
		int e = shms_packread_get(r, key, strlen(key), &v);

		cr_assert_eq(e, 0, "look %u: %d", i, e);
		cr_assert_eq(v.object.key_size, strlen(key));
		cr_assert_eq(memcmp(shms_pack_view_key(&v), key, strlen(key)), 0);
		shms_pack_unget(v.pack, &v, 0);
	}
	kill(pid, SIGKILL);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
	/* Its owner is dead, and what that had is there. */
	cr_assert_eq(look(r, "k"), 1);
	shms_pack_close(r, 0);
}

static int in_reader(void *arg)
{
	struct shms_pack *p = arg, *r = reader_of(p);
	struct shms_pack_view v;

	return shms_packread_get(r, "k", 1, &v) == 0 ? kill(getpid(), SIGKILL) : 1;
}

Test(packread, a_killed_readers_place_is_recovered)
{
	struct shms_pack *p = open_pack("a", false);
	struct shms_pack_view v;
	struct shms_segslot slot;
	struct shms_segrescued done;
	bool orphan;
	struct shms_seglook l;
	pid_t pid;

	cr_assert_eq(put(p, "k", 1000, 1, false), 0);
	cr_assert_eq(shms_pack_get(p, "k", 1, &v), 0);
	slot = slot_of(p, &v);
	shms_pack_unget(p, &v, NOW);
	pid = fork();
	if (pid == 0)
		_exit(in_reader(p));
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
	cr_assert_eq(drop(p, "k"), 0);
	cr_assert(shms_segslot_held(&slot));
	cr_assert_eq(
		shms_seglook_open(p->options.dir_fd, p->segments[v.number].file->name, true, &l),
		0);
	cr_assert_eq(shms_segrescue(&l, NULL, NOW, &done), 0);
	shms_seglook_close(&l);
	cr_assert_eq(segment_places(p->options.dir_fd, p->segments[v.number].file->name, &orphan),
		     1);
	cr_assert_not(shms_segslot_held(&slot));
	close_pack(p);
}

Test(packread, a_store_without_an_index_says_so_and_one_that_is_superseded_is_not_believed)
{
	struct shms_pack *p = open_pack("a", true), *r;

	cr_assert_eq(put(p, "k", 100, 1, false), 0);
	r = reader_of(p);
	cr_assert_eq(look(r, "k"), 1);
	/* The next process of the store makes its own. */
	close_pack(p);
	p = open_pack("a", true);
	cr_assert_eq(put(p, "l", 100, 2, false), 0);
	cr_assert_eq(look(r, "l"), 1);
	cr_assert_eq(drop(p, "k"), 0);
	cr_assert_eq(look(r, "k"), 0);
	cr_assert_eq(unlinkat(p->options.store_fd, "index", 0), 0);
	shms_packlines_end(&p->lines);
	p->index = (struct shms_packindex){0};
	cr_assert_eq(look(r, "l"), -ENOTSUP);
	shms_packread_end(r);
	cr_assert_eq(look(r, "l"), -ESTALE);
	shms_pack_close(r, 0);
	close_pack(p);
}
