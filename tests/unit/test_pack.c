/* SPDX-License-Identifier: Apache-2.0 */
/* A store's packed objects: by key, between stores, views that stay, kept
 * stores, children of a fork. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dice.h"
#include "packs.h"
#include "seglook.h"
#include "segments.h"

Test(pack, objects_come_and_go_by_key)
{
	static const size_t sizes[] = {0, 1, 1000, 8000, 9000, 65536, 1 << 20};
	struct shms_pack *p = open_pack("a", false);
	struct shms_segobject what = {"", 0, NULL, 0, NULL, 0, 0, NULL};
	char key[400], *large;

	for (size_t i = 0; i < 7; i++) {
		snprintf(key, sizeof(key), "a key of %0*zu", i % 2 ? 300 : 2, i);
		cr_assert_eq(put(p, key, sizes[i], i, false), 0);
		cr_assert_eq(put(p, key, sizes[i], i + 50, false), -EEXIST);
		cr_assert(has(p, key, sizes[i], i));
		cr_assert_eq(put(p, key, sizes[6 - i], i + 100, true), 0);
		cr_assert(has(p, key, sizes[6 - i], i + 100));
	}
	for (size_t i = 0; i < 7; i++) {
		snprintf(key, sizeof(key), "a key of %0*zu", i % 2 ? 300 : 2, i);
		cr_assert(has(p, key, sizes[6 - i], i + 100));
		cr_assert_eq(drop(p, key), 0);
		cr_assert_eq(drop(p, key), -ENOENT);
		cr_assert_not(has(p, key, sizes[6 - i], i + 100));
	}
	cr_assert_eq(shms_pack_put(p, &what, false, NOW, &(struct shms_seggrow){.may = UINT64_MAX}),
		     -EFBIG); /* without a key */
	large = malloc(33 << 20);
	what = (struct shms_segobject){"k", 1, NULL, 0, &(struct iovec){large, 33 << 20},
				       1,   0, NULL};
	cr_assert_eq(shms_pack_put(p, &what, false, NOW, &(struct shms_seggrow){.may = UINT64_MAX}),
		     -EFBIG);
	free(large);
	cr_assert_eq(p->index.n, 0);
	close_pack(p);
}

Test(pack, the_last_key_is_not_taken_for_another)
{
	/* Of all but the first the words in a slot are the same, or begin so. */
	static const char keys[][18] = {"other",
					"k",
					"k\0",
					"k\0\0",
					"k\0\0\0\0\0\0\0\0",
					"k\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"};
	static const size_t sizes[] = {5, 1, 2, 3, 9, 17};
	struct shms_pack *p = open_pack("a", false);
	struct shms_segobject what = {.n_buffers = 1};
	struct shms_pack_view v;

	for (size_t i = 0; i < 6; i++) {
		char bytes[100];

		memset(bytes, (int)i, sizeof(bytes));
		what.key = keys[i];
		what.key_size = sizes[i];
		what.buffers = &(struct iovec){bytes, sizeof(bytes)};
		cr_assert_eq(shms_pack_get(p, keys[i], sizes[i], &v), -ENOENT);
		cr_assert_eq(shms_pack_put(p, &what, false, NOW,
					   &(struct shms_seggrow){.may = UINT64_MAX}),
			     0);
		for (size_t k = 0; k <= i; k++) {
			cr_assert_eq(shms_pack_get(p, keys[k], sizes[k], &v), 0);
			cr_assert_eq(v.segment->bytes[v.object.extent_off], k);
			shms_pack_unget(p, &v, NOW);
		}
	}
	for (size_t i = 0; i < 6; i++) {
		cr_assert(shms_pack_has(p, keys[i], sizes[i]));
		cr_assert_eq(shms_pack_delete(p, keys[i], sizes[i], NOW, &(uint64_t){0}), 0);
		cr_assert_not(shms_pack_has(p, keys[i], sizes[i]));
		cr_assert_eq(shms_pack_has(p, keys[(i + 1) % 6], sizes[(i + 1) % 6]), i < 5);
	}
	close_pack(p);
}

Test(pack, no_bytes_change_under_a_view)
{
	struct shms_pack *p = open_pack("a", false);
	struct shms_pack_view v, again;
	uint32_t slot;

	cr_assert_eq(put(p, "old", 1000, 1, false), 0);
	cr_assert_eq(shms_pack_get(p, "old", 3, &v), 0);
	cr_assert_eq(shms_pack_get(p, "old", 3, &again), 0);
	cr_assert_eq(put(p, "old", 1000, 2, true), 0);
	for (uint64_t i = 0; i < 500; i++) {
		cr_assert_eq(put(p, "k", 1000, i, false), 0);
		cr_assert_eq(drop(p, "k"), 0);
		cr_assert(is(&v, 1000, 1));
	}
	shms_pack_unget(p, &v, NOW);
	cr_assert_eq(put(p, "k", 1000, 3, false), 0);
	cr_assert(is(&again, 1000, 1));
	slot = again.slot;
	shms_pack_unget(p, &again, NOW);
	/* Now it is used again. */
	cr_assert_eq(put(p, "l", 1000, 4, false), 0);
	cr_assert_eq(shms_pack_get(p, "l", 1, &v), 0);
	cr_assert_eq(v.slot, slot);
	shms_pack_unget(p, &v, NOW);
	cr_assert(has(p, "old", 1000, 2) && has(p, "k", 1000, 3));
	close_pack(p);
}

Test(pack, tickets_are_good_for_one_adoption)
{
	struct shms_pack *a = open_pack("a", false), *b = open_pack("b", false),
			 *c = open_pack("c", false);
	char path[SHMS_PACK_TICKET], second[SHMS_PACK_TICKET], wrong[SHMS_PACK_TICKET];

	cr_assert_eq(put(a, "k", 1000, 1, false), 0);
	cr_assert_eq(hand_off(a, "none", path), -ENOENT);
	cr_assert_eq(hand_off(a, "k", path), 0);
	cr_assert_eq(
		adopt(b, "stores/a/handoff/000000000000000000000000000000000000000-1", "k", false),
		-EBADMSG);
	snprintf(wrong, sizeof(wrong), "%s0", path);
	cr_assert_eq(adopt(b, wrong, "k", false), -EBADMSG);
	/* Refusals leave the lease. */
	cr_assert_eq(adopt_at(b, path, "k", false, NOW + 60000), -ESTALE);
	cr_assert_eq(put(b, "k", 50, 2, false), 0);
	cr_assert_eq(adopt(b, path, "k", false), -EEXIST);
	cr_assert(has(b, "k", 50, 2));
	cr_assert_eq(adopt(b, path, "k", true), 0);
	cr_assert(has(b, "k", 1000, 1));
	cr_assert_eq(adopt(b, path, "k", true), -ESTALE);
	cr_assert_eq(adopt(c, path, "k", true), -ESTALE);
	/* Once more the same object, to one that has it. */
	cr_assert_eq(hand_off(a, "k", path), 0);
	cr_assert_eq(adopt(b, path, "k", false), 0);
	cr_assert_eq(b->index.n, 1);
	/* The first store goes; the second hands on what it has. */
	cr_assert_eq(hand_off(a, "k", second), 0);
	cr_assert_eq(drop(a, "k"), 0);
	close_pack(a);
	cr_assert_eq(hand_off(b, "k", path), 0);
	cr_assert_eq(drop(b, "k"), 0);
	cr_assert_eq(adopt(c, path, "k", false), 0);
	cr_assert(has(c, "k", 1000, 1));
	cr_assert_eq(adopt(b, second, "k", false), 0); /* found by its uuid */
	cr_assert_eq(drop(b, "k"), 0);
	close_pack(b);
	cr_assert(has(c, "k", 1000, 1));
	close_pack(c);
}

Test(pack, twelve_leases_then_again)
{
	struct shms_pack *a = open_pack("a", false), *b = open_pack("b", false);
	char path[12][SHMS_PACK_TICKET], more[SHMS_PACK_TICKET];

	cr_assert_eq(put(a, "k", 1000, 1, false), 0);
	for (int i = 0; i < 12; i++)
		cr_assert_eq(hand_off(a, "k", path[i]), 0);
	cr_assert_eq(hand_off(a, "k", more), -EAGAIN);
	cr_assert_eq(drop(a, "k"), 0);
	for (int i = 0; i < 12; i++) {
		cr_assert_eq(adopt(b, path[i], "k", false), 0);
		cr_assert_eq(drop(b, "k"), 0);
	}
	cr_assert_eq(put(a, "k", 1000, 2, false), 0);
	cr_assert_eq(a->segments[0].own->alloc.n_born, 1);
	close_pack(b);
	close_pack(a);
}

/* A process that was killed between its bit and its hint: the owner finds the slots all the same,
 * before it makes a segment more. */
static uint32_t n_born(const struct shms_pack *p)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->n_segments; i++)
		n += p->segments[i].own ? shms_segment_born(&p->segments[i].file->segment) : 0;
	return n;
}

/* Those that stand lie in several segments, of which the last has room for more. */
/* A lease keeps an object from leaving memory for as long as it stands, and no longer. */
Test(pack, victims_have_no_leases)
{
	struct shms_pack *p = open_pack("a", false);
	struct shms_packsearch search;
	char path[SHMS_PACK_TICKET];
	struct shms_pack_view v;

	cr_assert_eq(put(p, "k", 100, 1, false), 0);
	cr_assert_eq(hand_off(p, "k", path), 0);
	cr_assert(shms_pack_promised(p, "k", 1, NOW) && shms_pack_promised(p, "k", 1, NOW + 60000));
	search = shms_pack_search(p, NOW + 60000);
	cr_assert_eq(shms_pack_victim(p, &search, &v), -ENOENT);
	search = shms_pack_search(p, NOW + 64000); /* ends are in units of 2 s */
	cr_assert_eq(shms_pack_victim(p, &search, &v), 0);
	cr_assert(is(&v, 100, 1));
	shms_pack_unget(p, &v, NOW);
	cr_assert_not(shms_pack_promised(p, "k", 1, NOW + 64000));
	close_pack(p);
}

Test(pack, objects_that_come_and_go_in_turn_take_no_more_slots)
{
	const uint64_t standing = 2000;
	struct shms_pack *a = open_pack("a", false), *b = open_pack("b", false);
	char path[SHMS_PACK_TICKET], key[32];

	for (uint64_t i = 0; i < 3 * standing; i++) {
		snprintf(key, sizeof(key), "%lu", i);
		cr_assert_eq(put(a, key, 900, i, false), 0);
		/* Every third is another store's in the end, which leaves it by a hint. */
		if (i % 3 == 0) {
			cr_assert_eq(hand_off(a, key, path), 0);
			cr_assert_eq(adopt(b, path, key, false), 0);
			cr_assert_eq(drop(a, key), 0);
		}
		if (i < standing)
			continue;
		snprintf(key, sizeof(key), "%lu", i - standing);
		cr_assert_eq(drop((i - standing) % 3 ? a : b, key), 0);
	}
	cr_assert(a->n_segments > 1);
	cr_assert_leq(n_born(a), standing + 8);
	close_pack(b);
	close_pack(a);
}

Test(pack, slots_left_without_a_hint_are_found)
{
	struct shms_pack *a = open_pack("a", false), *b = open_pack("b", false);
	char path[SHMS_PACK_TICKET], key[16];
	uint32_t n = 0;

	for (; !a->segments[1].file && !a->segments[2].file; n++) {
		snprintf(key, sizeof(key), "%u", n);
		cr_assert_eq(put(a, key, 1000, n, false), 0);
		cr_assert_eq(hand_off(a, key, path), 0);
		cr_assert_eq(adopt(b, path, key, false), 0);
		cr_assert_eq(drop(a, key), 0);
	}
	cr_assert(n > 80);
	for (uint32_t i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "%u", i);
		cr_assert_eq(drop(b, key), 0);
	}
	for (uint32_t k = 0; k < 2; k++) {
		struct shms_segment *g = &a->segments[k].file->segment;

		for (uint32_t word = 0; word <= g->shape.n_slots / 64; word++)
			(void)shms_segment_hinted(g, word);
	}
	/* More than the second has room for: the first one has what is missing. */
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < 2 * n + n / 3; i++) {
			snprintf(key, sizeof(key), "%u", i);
			cr_assert_eq(put(a, key, 1000, i, false), 0);
		}
		for (uint32_t i = 0; i < 2 * n + n / 3; i++) {
			snprintf(key, sizeof(key), "%u", i);
			cr_assert_eq(drop(a, key), 0);
		}
	}
	cr_assert_null(a->segments[2].file);
	close_pack(b);
	close_pack(a);
}

/* As if it had been killed between the two steps of a replace: two objects of one key, of which
 * readers have found the second. */
static void put_twice(struct shms_pack *p, const char *key)
{
	struct shms_pack_view v;

	cr_assert_eq(put(p, key, 100, 1, false), 0);
	cr_assert_eq(shms_pack_get(p, key, strlen(key), &v), 0);
	shms_pack_unget(p, &v, NOW);
	cr_assert(shms_packindex_drop(&p->index, shms_packhash(key, strlen(key)).hash,
				      (struct shms_packplace){v.number, v.slot}));
}

/* The last key that was looked up is remembered, and was so for the object that loses its name. */
Test(pack, kept_store_of_one_key_killed_while_it_replaced_its_object)
{
	struct shms_pack *a = open_pack("a", true);

	put_twice(a, "k");
	cr_assert_eq(put(a, "k", 100, 2, false), 0);
	close_pack(a);
	a = open_pack("a", true);
	cr_assert(has(a, "k", 100, 2));
	cr_assert_eq(put(a, "l", 100, 3, false), 0);
	cr_assert(has(a, "k", 100, 2));
	cr_assert_eq(drop(a, "k"), 0);
	cr_assert_eq(drop(a, "k"), -ENOENT);
	cr_assert_eq(drop(a, "l"), 0);
	cr_assert_eq(a->index.n, 0);
	close_pack(a);
}

Test(pack, kept_store_finds_all_it_had)
{
	struct shms_pack *a = open_pack("a", true), *b = open_pack("b", true);
	char path[SHMS_PACK_TICKET], key[32];

	for (uint64_t i = 0; i < 2000; i++) {
		snprintf(key, sizeof(key), "%lu", i);
		cr_assert_eq(put(a, key, i % 100 ? 700 : 20000, i, false), 0);
		if (i % 3 == 0) {
			cr_assert_eq(hand_off(a, key, path), 0);
			cr_assert_eq(adopt(b, path, key, false), 0);
		}
		if (i % 5 == 0)
			cr_assert_eq(drop(a, key), 0);
	}
	put_twice(a, "twice");
	cr_assert_eq(put(a, "twice", 100, 2, false), 0);
	/* Its second object gets a slot that comes before the first one's. */
	cr_assert_eq(put(a, "before", 100, 1, false), 0);
	put_twice(a, "again");
	cr_assert_eq(drop(a, "before"), 0);
	cr_assert_eq(put(a, "again", 100, 2, false), 0);
	close_pack(a);
	close_pack(b);
	b = open_pack("b", true);
	a = open_pack("a", true);
	for (uint64_t i = 0; i < 2000; i++) {
		snprintf(key, sizeof(key), "%lu", i);
		cr_assert_eq(has(a, key, i % 100 ? 700 : 20000, i), i % 5 != 0);
		cr_assert_eq(has(b, key, i % 100 ? 700 : 20000, i), i % 3 == 0);
	}
	for (const char **k = (const char *[]){"twice", "again", NULL}; *k; k++) {
		cr_assert(has(a, *k, 100, 2), "%s", *k);
		cr_assert_eq(drop(a, *k), 0);
		cr_assert_eq(drop(a, *k), -ENOENT);
	}
	for (uint64_t i = 0; i < 2000; i++) {
		snprintf(key, sizeof(key), "%lu", i);
		cr_assert_eq(drop(b, key), i % 3 ? -ENOENT : 0);
		cr_assert_eq(drop(a, key), i % 5 ? 0 : -ENOENT);
	}
	cr_assert_eq(a->index.n + b->index.n, 0);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert(shms_segown_unused(a->segments[i].own, NOW), "%u", i);
	close_pack(b);
	close_pack(a);
}

Test(pack, child_keeps_the_views_that_it_inherited)
{
	struct shms_pack *p = open_pack("a", false);
	int go[2], said[2];
	struct shms_pack_view v;
	const uint8_t *bytes;
	char byte = 0;
	pid_t pid;

	ENSURE(pipe(go) == 0 && pipe(said) == 0);
	cr_assert_eq(put(p, "k", 1000, 1, false), 0);
	cr_assert_eq(shms_pack_get(p, "k", 1, &v), 0);
	bytes = v.segment->bytes + v.object.extent_off;
	shms_pack_fork_prepare(p);
	pid = fork_bound(60);
	if (pid == 0) {
		shms_pack_fork_child(p);
		shms_pack_unget(p, &v, NOW); /* nothing: what it points to stays */
		shms_pack_close(p, NOW);
		ENSURE(read(go[0], &byte, 1) == 1);
		byte = (char)(pattern_check(bytes, 1000, 1) == 1000);
		ENSURE(write(said[1], &byte, 1) == 1);
		_exit(0);
	}
	shms_pack_fork_parent(p);
	close(said[1]);
	shms_pack_unget(p, &v, NOW);
	cr_assert_eq(drop(p, "k"), 0);
	for (uint64_t i = 0; i < 3000; i++) {
		char key[16];

		snprintf(key, sizeof(key), "%lu", i);
		cr_assert_eq(put(p, key, 1000, i + 2, false), 0);
	}
	ENSURE(write(go[1], &byte, 1) == 1);
	cr_assert_eq(read(said[0], &byte, 1), 1);
	cr_assert_eq(byte, 1);
	cr_assert_eq(p->segments[0].n_viewed, 1);
	waitpid(pid, NULL, 0);
	shms_packseg_settle(p, &p->segments[0], NOW);
	cr_assert(p->segments[0].n_viewed == 0 && !p->segments[0].inherited);
	close_pack(p);
}

/* A store that closes while a child of it has views: the object is that child's until it
 * ends; then gc takes the rest. */
Test(pack, closed_store_leaves_to_its_children_what_they_view)
{
	struct shms_pack *p = open_pack("a", false);
	char name[SHMS_SEGFILE_NAME];
	struct shms_segrescued done;
	struct shms_pack_view v;
	uint8_t uuid[16] = "a";
	int go[2], dir;
	const uint8_t *bytes;
	bool orphan;
	char byte = 0;
	pid_t pid;

	ENSURE(pipe(go) == 0);
	cr_assert_eq(put(p, "k", 1000, 1, false), 0);
	cr_assert_eq(put(p, "l", 1000, 2, false), 0);
	cr_assert_eq(shms_pack_get(p, "k", 1, &v), 0);
	bytes = v.segment->bytes + v.object.extent_off;
	shms_pack_fork_prepare(p);
	pid = fork_bound(60);
	if (pid == 0) {
		shms_pack_fork_child(p);
		close(go[1]);
		while (read(go[0], &byte, 1) > 0)
			;
		_exit(pattern_check(bytes, 1000, 1) == 1000 ? 0 : 1);
	}
	shms_pack_fork_parent(p);
	shms_pack_unget(p, &v, NOW);
	memcpy(name, p->segments[0].file->name, sizeof(name));
	/* Its own link goes with the names. */
	ENSURE(mkdirat(root_fd, "others", 0700) == 0);
	dir = openat(root_fd, "others", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ENSURE(dir >= 0 && linkat(p->options.dir_fd, name, dir, name, 0) == 0);
	close_pack(p);
	cr_assert_eq(shms_segrescue_unlink(dir, name, uuid, NOW, false, &done), 1);
	cr_assert(segment_places(dir, name, &orphan) == 1 && !orphan);
	close(go[1]);
	{
		int status;

		waitpid(pid, &status, 0);
		cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	cr_assert_eq(shms_segrescue_unlink(dir, name, uuid, NOW, false, &done), 0);
	close(dir);
}

/* Of 300 keys in any order: the index says what a table says. */
Test(pack, random_histories)
{
	uint64_t first, n = dice_seeds(n_rounds(20), &first);

	for (uint64_t seed = first; seed < first + n; seed++) {
		struct shms_pack *p = open_pack("a", false);
		struct dice d = {.state = seed};
		uint64_t content[300] = {0};
		char key[16];

		for (uint64_t i = 1; i <= 5000; i++) {
			size_t k = dice_draw(&d, 300);
			size_t size = content[k] % 3000;

			snprintf(key, sizeof(key), "%zu", k);
			switch (dice_draw(&d, 4)) {
			case 0:
				cr_assert_eq(put(p, key, i % 3000, i, false),
					     content[k] ? -EEXIST : 0);
				content[k] = content[k] ? content[k] : i;
				break;
			case 1:
				cr_assert_eq(put(p, key, i % 3000, i, true), 0);
				content[k] = i;
				break;
			case 2:
				cr_assert_eq(drop(p, key), content[k] ? 0 : -ENOENT);
				content[k] = 0;
				break;
			default:
				cr_assert_eq(has(p, key, size, content[k]), content[k] != 0,
					     "seed %lu, %lu", seed, i);
				break;
			}
		}
		close_pack(p);
	}
}

Test(pack, a_hundred_thousand_objects)
{
	struct shms_pack *p = open_pack("a", false);
	char key[16];

	for (uint64_t i = 0; i < 100000; i++) {
		snprintf(key, sizeof(key), "%lu", i);
		cr_assert_eq(put(p, key, 100, i, false), 0);
	}
	cr_assert_eq(shms_pack_sum(p).n, 100000);
	for (uint64_t i = 0; i < 100000; i += 7) {
		snprintf(key, sizeof(key), "%lu", i);
		cr_assert(has(p, key, 100, i));
	}
	for (uint64_t i = 0; i < 100000; i++) {
		snprintf(key, sizeof(key), "%lu", i);
		cr_assert_eq(drop(p, key), 0);
	}
	cr_assert_eq(p->index.n, 0);
	close_pack(p);
	cr_assert_eq(count_dir(scratch_dir(NULL)), 1);
}

Test(pack, an_object_that_nobody_shows_is_not_found_by_its_address)
{
	struct shms_pack *p = open_pack("a", false);
	struct shms_pack_view v, at;
	const uint8_t *bytes;

	cr_assert_eq(put(p, "other", 70000, 2, false), 0);
	cr_assert_eq(put(p, "k", 70000, 1, false), 0);
	cr_assert_eq(shms_pack_get(p, "k", 1, &v), 0);
	bytes = v.segment->bytes + v.object.extent_off;
	cr_assert_eq(shms_pack_at(p, bytes, &at), 0);
	cr_assert(at.slot == v.slot && at.number == v.number && is(&at, 70000, 1));
	shms_pack_unget(p, &at, NOW);
	cr_assert_eq(shms_pack_at(p, bytes + 64, &at), -ENOENT);
	cr_assert_eq(shms_pack_at(p, &v, &at), -ENOENT);
	/* Its name went: the view keeps it. */
	cr_assert_eq(drop(p, "k"), 0);
	cr_assert_eq(shms_pack_at(p, bytes, &at), 0);
	shms_pack_unget(p, &at, NOW);
	shms_pack_unget(p, &v, NOW);
	cr_assert_eq(shms_pack_at(p, bytes, &at), -ENOENT);
	close_pack(p);
}
