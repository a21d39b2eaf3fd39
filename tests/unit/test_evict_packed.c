/* SPDX-License-Identifier: Apache-2.0 */
/* Packed objects go to the disk tier when a put finds no room, whether it was there
 * when they were put or not. */
#include <criterion/criterion.h>
#include <errno.h>
#include <shmstore/inspect.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "crowded.h"
#include "scratch.h"
#include "tiered.h"

#define SIZE   (48u << 10)
#define PACKED ((unsigned)(CROWDED_OF * MIB / SIZE * 9 / 10))
#define ALL    (3 * (unsigned)(CROWDED_OF * MIB / SIZE))
#define KILLS  16

TestSuite(evict_packed, .timeout = 120);

static const char *key_of(unsigned i)
{
	static char text[400];

	/* Every 16th has a name that is a hash: its stub needs a sidecar. */
	snprintf(text, sizeof(text), "%s%0*u", i % 16 ? "k" : "", i % 16 ? 1 : 300, i);
	return text;
}

static struct shmstore *open_store(const char *name, bool keep)
{
	return packing_store(name, 256u << 10, keep);
}

static void put(struct shmstore *s, unsigned i)
{
	int r = put_pattern(s, key_of(i), SIZE, i, 0);

	cr_assert_eq(r, 0, "%u: %s %s", i, shmstore_strerror(r), shmstore_error_detail());
}

/* A store that nearly fills a partition without a tier by packed objects, and the tier after
 * that. */
static struct shmstore *open_full(bool keep)
{
	struct shmstore *s;

	scratch_dir("size=64m");
	if (!scratch_is_mount() || !tiered_disk())
		cr_skip_test("needs a tmpfs of its own (root) and a directory on disk\n");
	s = open_store("a", keep);
	for (unsigned i = 0; i < PACKED; i++)
		put(s, i);
	cr_assert(tiered_begin(NULL));
	return s;
}

static int count_packed(const struct shmstore_object_info *info, void *arg)
{
	cr_assert_eq(info->error, 0);
	*(unsigned *)arg += info->packed;
	return 0;
}

static unsigned n_packed(struct shmstore *s)
{
	unsigned n = 0;

	cr_assert_eq(shmstore_foreach(s, count_packed, &n), 0);
	return n;
}

/* Every step-th of n objects has its bytes, and all are there. */
static void check(struct shmstore *s, unsigned n, unsigned step)
{
	for (unsigned i = n % step; i < n; i += step)
		cr_assert_eq(get_pattern(s, key_of(i), SIZE, i), 0, "%u", i);
	cr_assert_eq(count_objects(s), (int)n);
}

Test(evict_packed, pinned_ones_stay)
{
	struct shmstore *s = open_full(false);
	unsigned n_gone = 0;

	for (unsigned i = 0; i < 10; i++)
		cr_assert_eq(shmstore_pin(s, key_of(i), strlen(key_of(i)), true), 0);
	for (unsigned i = PACKED; i < 2 * PACKED; i++)
		put(s, i);
	for (unsigned i = 0; i < PACKED; i++) {
		bool gone = shmstore_locate(s, key_of(i), strlen(key_of(i))) == SHMSTORE_IN_TIER;

		cr_assert(!gone || i >= 10, "%u", i);
		n_gone += gone;
	}
	cr_assert_gt(n_gone, PACKED / 2);
	check(s, 2 * PACKED, 7);
	cr_assert_eq(shmstore_close(s), 0);
}

static int count_sums(const struct shmstore_object_info *info, void *arg)
{
	*(unsigned *)arg += info->checksum && !info->packed;
	return 0;
}

Test(evict_packed, checksums_go_along)
{
	struct shmstore *s = open_full(false);
	unsigned n_gone = 0, n_sums = 0;

	for (unsigned i = 1; i < 16; i++) {
		cr_assert_eq(shmstore_delete(s, KEY(key_of(i))), 0);
		cr_assert_eq(put_pattern(s, key_of(i), SIZE, i, SHMSTORE_CHECKSUM), 0);
	}
	for (unsigned i = PACKED; i < 2 * PACKED; i++)
		put(s, i);
	for (unsigned i = 1; i < 16; i++) {
		if (shmstore_locate(s, KEY(key_of(i))) != SHMSTORE_IN_TIER)
			continue;
		n_gone++;
		cr_assert_eq(shmstore_promote(s, KEY(key_of(i)), 0), 0);
	}
	cr_assert_gt(n_gone, 0);
	cr_assert_eq(shmstore_foreach(s, count_sums, &n_sums), 0);
	cr_assert_eq(n_sums, n_gone);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(evict_packed, three_times_what_fits)
{
	struct shmstore_view *held;
	struct shmstore *s = open_full(false);
	struct shmstore_ticket t;

	cr_assert_gt(n_packed(s), PACKED / 2);
	held = get_view(s, key_of(1), 0);
	cr_assert_eq(shmstore_handoff(s, key_of(2), strlen(key_of(2)), 600000, &t), 0);
	for (unsigned i = PACKED; i < ALL; i++)
		put(s, i);
	cr_assert_gt(tiered_count_files(), (int)PACKED);
	cr_assert_gt(n_packed(s), PACKED / 2, "what was put meanwhile is packed, too");
	for (unsigned i = 1; i <= 2; i++)
		cr_assert_eq(shmstore_locate(s, key_of(i), strlen(key_of(i))), SHMSTORE_IN_MEMORY,
			     "what is looked at, and what is promised, stays");
	cr_assert_eq(view_pattern(held, SIZE, 1), 0);
	shmstore_view_unref(held);
	check(s, ALL, 1);
	ensure_books_close();
	for (unsigned i = 0; i < ALL; i++)
		cr_assert_eq(shmstore_delete(s, key_of(i), strlen(key_of(i))), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_tier_empty();
}

static int note_packed(const struct shmstore_object_info *info, void *arg)
{
	char text[400];
	bool *packed = arg;

	snprintf(text, sizeof(text), "%.*s", (int)info->key_size, (const char *)info->key);
	packed[strtoul(text + (text[0] == 'k'), NULL, 10)] = info->packed;
	return 0;
}

/* Objects that are got again and again never leave; the others all do. */
Test(evict_packed, what_is_used_stays)
{
	static bool packed[ALL];
	unsigned n_hot = PACKED / 8;
	struct shmstore *s = open_full(false);

	for (unsigned i = PACKED; i < ALL; i++) {
		put(s, i);
		/* Each hot one more often than the search comes by. */
		for (unsigned k = 0; k < 8; k++)
			shmstore_view_unref(get_view(s, key_of((i * 8 + k) % n_hot), 0));
	}
	cr_assert_eq(shmstore_foreach(s, note_packed, packed), 0);
	for (unsigned i = 0; i < PACKED; i++)
		cr_assert_eq(packed[i], i < n_hot, "%u", i);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

/* The first three objects are the first that a search finds. */
Test(evict_packed, what_somebody_has_stays)
{
	struct shmstore *s = open_full(false), *other = scratch_store("other");
	struct shmstore_view *v = get_view(s, key_of(0), 0);
	struct shmstore_ticket leased, adopted;

	cr_assert_eq(shmstore_handoff(s, KEY(key_of(1)), 60000, &leased), 0);
	cr_assert_eq(shmstore_handoff(s, KEY(key_of(2)), 60000, &adopted), 0);
	cr_assert_eq(shmstore_adopt(other, KEY(key_of(2)), &adopted, 0), 0);
	for (unsigned i = PACKED; i < ALL; i++)
		put(s, i);
	for (unsigned i = 0; i < 3; i++)
		cr_expect_neq(shmstore_locate(s, KEY(key_of(i))), SHMSTORE_IN_TIER, "%u", i);
	cr_expect_eq(shmstore_locate(s, KEY(key_of(3))), SHMSTORE_IN_TIER);
	cr_assert_eq(shmstore_adopt(other, KEY(key_of(1)), &leased, 0), 0);
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_close(other), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

/* As a file with one, it stays where it is. */
Test(evict_packed, a_leased_one_is_not_demoted)
{
	struct shmstore_ticket t;
	struct shmstore *s, *other;

	TIERED_OR_SKIP();
	s = open_store("a", false);
	other = open_store("other", false);
	put(s, 1);
	cr_assert_eq(shmstore_handoff(s, KEY(key_of(1)), 60000, &t), 0);
	cr_assert_eq(shmstore_demote(s, KEY(key_of(1)), 0), -EPERM);
	cr_assert_eq(n_packed(s), 1);
	cr_assert_eq(tiered_count_files(), 0);
	cr_assert_eq(shmstore_adopt(other, KEY(key_of(1)), &t, 0), 0);
	cr_assert_eq(shmstore_demote(s, KEY(key_of(1)), 0), 0);
	cr_assert_eq(shmstore_locate(s, KEY(key_of(1))), SHMSTORE_IN_TIER);
	cr_assert_eq(get_pattern(other, key_of(1), SIZE, 1), 0);
	cr_assert_eq(get_pattern(s, key_of(1), SIZE, 1), 0);
	cr_assert_eq(shmstore_close(other), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

static int counters_of(const struct shmstore_store_info *info, void *arg)
{
	*(struct shmstore_counters *)arg = info->counters;
	return 0;
}

Test(evict_packed, demotion_is_counted_once)
{
	struct shmstore *s = open_full(false);
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_counters c = {0};
	unsigned n = PACKED, gone = 0;

	while (tiered_count_files() == 0)
		put(s, n++);
	for (unsigned i = 0; i < n; i++)
		gone += shmstore_locate(s, key_of(i), strlen(key_of(i))) == SHMSTORE_IN_TIER;
	cr_assert_eq(tiered_count_files(), (int)gone);
	ensure_books_close();
	cr_assert_eq(shmstore_partition_stores(p, counters_of, &c), 0);
	cr_assert_eq(c.demoted_n, gone);
	cr_assert_eq(c.evicted_n, gone);
	shmstore_partition_unref(p);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

/* Killed at any moment of an eviction: what was put is there, once, with the right bytes. */
Test(evict_packed, killed)
{
	_Atomic unsigned *n =
		mmap(NULL, sizeof(*n), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct shmstore *s = open_full(true);
	unsigned from = PACKED;
	int files, status;
	pid_t child;

	cr_assert_neq(n, MAP_FAILED);
	cr_assert_eq(shmstore_close(s), 0);
	for (unsigned i = 0; i < KILLS; i++) {
		atomic_store(n, from);
		files = tiered_count_files();
		child = fork();
		if (child == 0) {
			s = open_store("a", true);
			for (unsigned k = from;; k++) {
				if (put_pattern(s, key_of(k), SIZE, k, 0) != 0)
					_exit(1);
				atomic_store(n, k + 1);
			}
		}
		/* Amid an eviction, which moves more objects than that. */
		while (tiered_count_files() <= files + (int)i &&
		       waitpid(child, &status, WNOHANG) == 0)
			continue;
		kill(child, SIGKILL);
		cr_assert_eq(waitpid(child, &status, 0), child);
		cr_assert(WIFSIGNALED(status), "status %x", (unsigned)status);
		from = atomic_load(n);
		s = open_store("a", true);
		/* The put that was killed may have been done. */
		from += shmstore_contains(s, key_of(from), strlen(key_of(from))) == 1;
		check(s, from, i + 1 < KILLS ? 11 : 1);
		ensure_books_close();
		cr_assert_eq(shmstore_close(s), 0);
	}
	s = open_store("a", false);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}
