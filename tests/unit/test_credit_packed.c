/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credit of stores that pack: segments are charged as they grow, and no limit is passed, to
 * the byte of statfs; what nobody needs goes back when it is asked for, and objects are
 * packed under limits as without.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/statvfs.h>

#include "api.h"
#include "fakedaemon.h"

enum {
	MIB = 1 << 20,
	PACK_MAX = 256 << 10
};

struct life {
	struct fake *f;
	struct shmstore *s;
	struct wire_credit *c;
};

static struct shmstore *open_packing(const char *name)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s = NULL;

	o.pack_max = PACK_MAX;
	cr_assert_eq(shmstore_open(scratch_partition(), name, &o, &s), 0);
	return s;
}

static struct life begin(uint64_t room, uint64_t ahead)
{
	struct life l = {.f = fake_start(scratch_partition(), true, NULL, NULL)};

	if (!scratch_is_mount())
		cr_skip_test("no file system of its own");
	l.f->room = room;
	l.f->ahead = ahead;
	l.s = open_packing("a");
	l.c = fake_credit(l.f);
	return l;
}

static void end(struct life *l)
{
	cr_assert_eq(shmstore_close(l->s), 0);
	fake_stop(l->f);
}

static uint64_t used(void)
{
	struct statvfs fs;

	cr_assert_eq(statvfs(scratch_partition_path(), &fs), 0);
	return (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize;
}

static int64_t grown(struct wire_credit *c)
{
	return (int64_t)(atomic_load(&c->fresh) - atomic_load(&c->last));
}

static uint64_t next(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

/* Sizes of three orders, the middle one most often. */
static size_t some_size(uint64_t n)
{
	return n % 7 == 0 ? n % PACK_MAX : n % 3 ? n % 9000 : n % 64;
}

/* In any history of two stores that pack, fresh - last of both is what the file system grew by, and
 * nothing is charged unsettled. */
static void random_history(struct life *l, struct shmstore *other, struct wire_credit *theirs,
			   uint64_t seed)
{
	struct shmstore *stores[2] = {l->s, other};
	uint64_t state = seed, before = used() - (uint64_t)(grown(l->c) + grown(theirs));
	struct shmstore_ticket t;
	char key[16];

	for (unsigned i = 0; i < 3000; i++) {
		uint64_t n = next(&state);
		struct shmstore *s = stores[n / 64 % 2];
		int r = 0;

		snprintf(key, sizeof(key), "k%u", (unsigned)(n / 1024 % 150));
		if (n % 8 < 4) {
			r = put_pattern(s, key, some_size(next(&state)), i,
					n % 2 ? SHMSTORE_REPLACE : 0);
			cr_assert(r == 0 || r == -EEXIST, "put: %d", r);
		} else if (n % 8 < 6) {
			r = shmstore_delete(s, KEY(key));
			cr_assert(r == 0 || r == -ENOENT, "delete: %d", r);
		} else if (shmstore_handoff(s, KEY(key), 60000, &t) == 0) {
			r = shmstore_adopt(stores[n / 128 % 2], KEY(key), &t,
					   n % 2 ? SHMSTORE_REPLACE : 0);
			cr_assert(r == 0 || r == -EEXIST, "adopt: %d", r);
		}
		cr_assert_eq(used() - before, (uint64_t)(grown(l->c) + grown(theirs)),
			     "step %u: %lld more", i,
			     (long long)(used() - before) - grown(l->c) - grown(theirs));
		cr_assert_eq(atomic_load(&l->c->charged), atomic_load(&l->c->settled), "step %u",
			     i);
		cr_assert_geq(atomic_load(&l->c->charged), atomic_load(&l->c->fresh));
	}
}

static void history_is_what_the_file_system_says(const char *options)
{
	struct shmstore *other;
	struct wire_credit *theirs;
	struct shmstore_usage u;
	struct life l;

	scratch_dir(options);
	l = begin(1 << 30, 0);
	other = open_packing("b");
	theirs = fake_credit(l.f);
	cr_assert_neq(l.c, theirs);
	atomic_store(&l.c->flags, WIRE_CREDIT_LAST);
	atomic_store(&theirs->flags, WIRE_CREDIT_LAST);
	random_history(&l, other, theirs, 1);
	cr_assert_gt(count_packed_objects(l.s), 20);
	cr_assert_eq(shmstore_partition_usage(scratch_partition(), SHMSTORE_USAGE_FULL, &u), 0);
	cr_assert_eq(u.residual, 0);
	cr_assert_eq(shmstore_close(other), 0);
	end(&l);
}

Test(credit_packed, fresh_less_last_is_what_the_file_system_says)
{
	history_is_what_the_file_system_says("size=1g");
}

Test(credit_packed, and_with_huge_pages)
{
	history_is_what_the_file_system_says("size=1g,huge=within_size");
}

/* Puts objects of that size until one is refused. Returns how many there are. */
static unsigned fill(struct life *l, size_t size, int error, uint64_t before, uint64_t limit)
{
	unsigned n = 0;
	char key[16];
	int r = 0;

	while (r == 0) {
		snprintf(key, sizeof(key), "f%u", n);
		r = put_pattern(l->s, key, size, n, 0);
		n += r == 0;
		cr_assert_leq(used() - before, limit, "object %u of %zu", n, size);
	}
	cr_assert_eq(r, error, "%d", r);
	return n;
}

Test(credit_packed, granted_bytes_are_never_passed)
{
	for (size_t size = 100; size <= 100000; size *= 10) {
		struct life l = begin(3 * MIB, size % 3 ? MIB / 2 : 0);
		uint64_t before = used();
		unsigned n = fill(&l, size, -ENOSPC, before, 3 * MIB);

		cr_assert_gt(n * size, MIB, "%u of %zu", n, size);
		cr_assert_gt(count_packed_objects(l.s), (int)n / 2);
		/* Deleted objects make room for as much, without another grant. */
		for (unsigned i = 0; i < n; i++) {
			char key[16];

			snprintf(key, sizeof(key), "f%u", i);
			if (i % 2)
				cr_assert_eq(shmstore_delete(l.s, KEY(key)), 0);
		}
		cr_assert_eq(put_pattern(l.s, "more", size, 1, 0), 0);
		end(&l);
	}
}

Test(credit_packed, store_limit_counts_segments)
{
	for (size_t size = 100; size <= 100000; size *= 10) {
		struct life l = begin(1 << 30, 0);
		uint64_t before = used();
		unsigned n;

		atomic_store(&l.c->store_hard, 2 * MIB);
		n = fill(&l, size, -EDQUOT, before, 2 * MIB);
		cr_assert_gt(n * size, MIB / 2, "%u of %zu", n, size);
		cr_assert_eq(put_pattern(l.s, "large", PACK_MAX * 2, 1, 0), -EDQUOT);
		for (unsigned i = 0; i < n; i++) {
			char key[16];

			snprintf(key, sizeof(key), "f%u", i);
			cr_assert_eq(shmstore_delete(l.s, KEY(key)), 0);
		}
		/* The pool of segments gives way to a file. */
		cr_assert_eq(put_pattern(l.s, "large", PACK_MAX * 4, 1, 0), 0);
		cr_assert_leq(used() - before, 2 * MIB);
		end(&l);
	}
}

Test(credit_packed, store_limit_holds_for_adoption)
{
	struct life l = begin(1 << 30, 0);
	struct shmstore *other = open_packing("b");
	struct shmstore_ticket t;

	cr_assert_eq(put_pattern(other, "k", 100000, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(other, KEY("k"), 60000, &t), 0);
	atomic_store(&l.c->store_hard, 90000);
	cr_assert_eq(shmstore_adopt(l.s, KEY("k"), &t, 0), -EDQUOT);
	atomic_store(&l.c->store_hard, 105000);
	cr_assert_eq(shmstore_adopt(l.s, KEY("k"), &t, 0), 0);
	cr_assert_eq(put_pattern(l.s, "l", 1000, 1, 0), -EDQUOT);
	/* Held already, it takes no more than it did. */
	cr_assert_eq(shmstore_handoff(other, KEY("k"), 60000, &t), 0);
	cr_assert_eq(shmstore_adopt(l.s, KEY("k"), &t, 0), 0);
	cr_assert_eq(shmstore_close(other), 0);
	end(&l);
}

Test(credit_packed, pool_goes_back_when_it_is_asked_for)
{
	struct life l = begin(1 << 30, 0);
	uint64_t before = used(), full;
	char key[16];

	for (unsigned i = 0; i < 3000; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		cr_assert_eq(put_pattern(l.s, key, 1000, i, 0), 0);
	}
	full = used() - before;
	for (unsigned i = 0; i < 2990; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		cr_assert_eq(shmstore_delete(l.s, KEY(key)), 0);
	}
	cr_assert_eq(used() - before, full, "it waits for the next put");
	atomic_store(&l.c->asked_bytes, full);
	atomic_fetch_add(&l.c->asked_n, 1);
	cr_assert_eq(shmstore_delete(l.s, KEY("k2990")), 0);
	cr_assert_lt(used() - before, full / 4, "%zu of %zu", (size_t)(used() - before),
		     (size_t)full);
	cr_assert_eq(atomic_load(&l.c->last), full - (used() - before));
	/* As long as it is asked for, each goes at once. */
	full = used();
	for (unsigned i = 2991; i < 3000; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		cr_assert_eq(shmstore_delete(l.s, KEY(key)), 0);
	}
	cr_assert_lt(used(), full);
	end(&l);
}

Test(credit_packed, close_gives_all_back)
{
	struct life l = begin(1 << 30, 0);
	uint64_t page;
	char key[16];

	atomic_store(&l.c->flags, WIRE_CREDIT_LAST);
	for (unsigned i = 0; i < 1000; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		cr_assert_eq(put_pattern(l.s, key, 3000, i, 0), 0);
	}
	cr_assert_eq(count_packed_objects(l.s), 1000);
	page = 4096;
	cr_assert_eq(shmstore_close(l.s), 0);
	/* The store's own page went too, which nobody charged. */
	cr_assert_eq(atomic_load(&l.c->last), atomic_load(&l.c->fresh) + page);
	fake_stop(l.f);
}
