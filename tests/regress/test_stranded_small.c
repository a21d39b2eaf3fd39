/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small objects that stayed where most of their neighbours were deleted kept nearly every page, and
 * the table of their slots: no other size could have that memory.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <shmstore/shmstore.h>
#include <shmstore/tier.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"

#define MIB   (UINT64_C(1) << 20)
#define SIZE  (64 * MIB)
#define EVERY 32
#define HELD  16

static uint64_t size_of(unsigned i)
{
	return i % 3 ? 80 : 300;
}

static const char *key_of(unsigned i)
{
	static char key[16];

	snprintf(key, sizeof(key), "k%u", i);
	return key;
}

/* Small objects until the partition is full. Returns how many. */
static unsigned fill(struct shmstore *s)
{
	unsigned n = 0;

	while (put_pattern(s, key_of(n), size_of(n), n, 0) == 0)
		n++;
	return n;
}

static void thin_out(struct shmstore *s, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (i % EVERY)
			cr_assert_eq(shmstore_delete(s, KEY(key_of(i))), 0);
}

/* Objects of 900,000 bytes until it is full. Returns their bytes. */
static uint64_t fill_with_large(struct shmstore *s)
{
	char key[16];

	for (unsigned n = 0;; n++) {
		snprintf(key, sizeof(key), "large%u", n);
		if (put_pattern(s, key, 900000, n, 0) < 0)
			return n * UINT64_C(900000);
	}
}

static void check(struct shmstore *s, unsigned n)
{
	for (unsigned i = 0; i < n; i += EVERY)
		cr_assert_eq(get_pattern(s, key_of(i), size_of(i), i), 0, "%u", i);
	for (unsigned i = 0; i < n; i++)
		if (i % EVERY)
			cr_assert_eq(get_pattern(s, key_of(i), size_of(i), i), -ENOENT, "%u", i);
}

Test(stranded_small, other_sizes_get_the_memory)
{
	struct shmstore *s;
	unsigned n;

	scratch_dir("size=64m,huge=never");
	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own\n");
	s = packing_store("a", MIB, false);
	n = fill(s);
	cr_assert_gt(n, 50000u);
	thin_out(s, n);
	cr_assert_gt(fill_with_large(s), SIZE * 8 / 10);
	check(s, n);
	cr_assert_leq(ensure_books_close().stranded, SIZE / 10);
	cr_assert_eq(count_packed_objects(s), count_objects(s));
	/* It goes on from there. */
	for (unsigned i = 0; i < n; i += EVERY)
		cr_assert_eq(shmstore_delete(s, KEY(key_of(i))), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

static int add_stranded(const struct shmstore_store_books *b, void *arg)
{
	*(uint64_t *)arg += b->stranded;
	return 0;
}

/* Of whole pages of objects each eighth object stays: what it has not of its page
 * is stranded, in all books. */
Test(stranded_small, is_counted_by_itself)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), each, of_stores = 0;
	struct shmstore_partition *p;
	struct shmstore_usage u;
	struct shmstore *s;

	scratch_dir("size=64m,huge=never");
	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own\n");
	p = scratch_partition();
	s = packing_store("a", MIB, false);
	for (unsigned i = 0; i < 1024; i++)
		cr_assert_eq(put_pattern(s, key_of(i), 960, i, 0), 0);
	u = ensure_books_close();
	each = (u.linked - u.metadata) / 1024;
	cr_assert_eq(page % each, 0, "%llu", (unsigned long long)each);
	cr_assert_eq(u.stranded, 0);
	for (unsigned i = 0; i < 1024; i++)
		if (i % 8)
			cr_assert_eq(shmstore_delete(s, KEY(key_of(i))), 0);
	u = ensure_books_close();
	cr_assert_eq(u.linked - u.metadata, 128 * each);
	cr_assert_eq(u.stranded, page / each < 8 ? 128 * (page - each) : 128 * 7 * each);
	cr_assert_geq(u.pool, u.stranded);
	cr_assert_eq(shmstore_partition_books(p, add_stranded, &of_stores, NULL), 0);
	cr_assert_eq(of_stores, u.stranded);
	for (unsigned i = 0; i < 1024; i += 8)
		cr_assert_eq(shmstore_delete(s, KEY(key_of(i))), 0);
	cr_assert_eq(ensure_books_close().stranded, 0);
	shmstore_partition_unref(p);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

/* Objects with views, leases, other holders, further keys or a pin are where they
 * were, and what they were. */
Test(stranded_small, what_is_held_stays)
{
	struct shmstore_view *views[HELD];
	struct shmstore_ticket tickets[HELD], adopted;
	struct other o;
	struct shmstore *s;
	unsigned n, i;

	scratch_dir("size=64m,huge=never");
	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own\n");
	o = other_start("o");
	s = packing_store("a", MIB, false);
	n = fill(s);
	thin_out(s, n);
	for (i = 0; i < HELD; i++) {
		views[i] = get_view(s, key_of(i * 320), 0);
		cr_assert_eq(shmstore_handoff(s, KEY(key_of(i * 320 + 32)), 600000, &tickets[i]),
			     0);
		cr_assert_eq(shmstore_handoff(s, KEY(key_of(i * 320 + 64)), 600000, &adopted), 0);
		cr_assert_eq(other_adopt(&o, key_of(i), &adopted), 0);
		cr_assert_eq(shmstore_pin(s, KEY(key_of(i * 320 + 96)), true), 0);
	}
	cr_assert_gt(fill_with_large(s), SIZE * 5 / 10);
	check(s, n);
	for (i = 0; i < HELD; i++) {
		cr_assert_eq(view_pattern(views[i], size_of(i * 320), i * 320), 0);
		shmstore_view_unref(views[i]);
		cr_assert_eq(other_get(&o, key_of(i), size_of(i * 320 + 64), i * 320 + 64), 0);
		cr_assert_eq(other_delete(&o, key_of(i)), 0);
		cr_assert_eq(other_adopt(&o, "ticket", &tickets[i]), 0);
		cr_assert_eq(other_get(&o, "ticket", size_of(i * 320 + 32), i * 320 + 32), 0);
		cr_assert_eq(other_delete(&o, "ticket"), 0);
	}
	ensure_books_close();
	cr_assert_eq(other_close(&o), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

/* Fills, thins out and fills again, without end. Writes a byte each time before
 * it needs what is stranded. */
static void churn(int to)
{
	struct shmstore *s = packing_store("kept", MIB, true);

	for (unsigned n = fill(s);; n = fill(s)) {
		char key[16];

		for (unsigned i = 0; i < n; i++)
			if (i % EVERY)
				shmstore_delete(s, KEY(key_of(i)));
		ENSURE(write(to, "t", 1) == 1);
		fill_with_large(s);
		for (unsigned i = 0; i < 10; i++) {
			snprintf(key, sizeof(key), "large%u", i);
			shmstore_delete(s, KEY(key));
		}
		for (unsigned i = 0; i < n; i += EVERY)
			shmstore_delete(s, KEY(key_of(i)));
	}
}

Test(stranded_small, a_store_killed_amid_has_each_key_once, .timeout = 120)
{
	scratch_dir("size=8m,huge=never");
	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own\n");
	shmstore_partition_unref(scratch_partition());
	for (unsigned round = 0; round < 20; round++) {
		struct shmstore *s;
		unsigned n_small = 0, n_large = 0;
		char key[16], thin;
		int pipes[2];
		pid_t pid;

		cr_assert_eq(pipe(pipes), 0);
		pid = fork();
		cr_assert_geq(pid, 0);
		if (pid == 0)
			churn(pipes[1]);
		/* At the second turn, and a little later each time. */
		cr_assert_eq(read(pipes[0], &thin, 1), 1);
		cr_assert_eq(read(pipes[0], &thin, 1), 1);
		usleep(round * 500);
		cr_assert_eq(kill(pid, SIGKILL), 0);
		cr_assert_eq(waitpid(pid, NULL, 0), pid);
		close(pipes[0]);
		close(pipes[1]);
		s = packing_store("kept", MIB, true);
		for (unsigned i = 0; i < 50000; i++) {
			int r = get_pattern(s, key_of(i), size_of(i), i);

			cr_assert(r == 0 || r == -ENOENT, "round %u, %s: %d", round, key_of(i), r);
			n_small += r == 0;
		}
		for (unsigned i = 0; i < 10; i++) {
			snprintf(key, sizeof(key), "large%u", i);
			n_large += get_pattern(s, key, 900000, i) == 0;
		}
		cr_assert_eq(count_objects(s), (int)(n_small + n_large), "round %u", round);
		cr_assert_eq(shmstore_close(s), 0);
	}
}
