/* SPDX-License-Identifier: Apache-2.0 */
/* Stores that idle kept the memory of what they had deleted from everybody else, and
 * nothing made them give it back. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <sys/statvfs.h>

#include "api.h"
#include "books.h"
#include "handle.h"

#define STORES 15
#define MIB    (UINT64_C(1) << 20)

static uint64_t used(void)
{
	struct statvfs fs;

	cr_assert_eq(statvfs(scratch_dir(NULL), &fs), 0);
	return (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize;
}

static void fill_and_idle(struct other *o, uint64_t size, int n)
{
	char key[16];

	for (int i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "%d", i);
		cr_assert_eq(other_put(o, key, size, 1), 0);
	}
	for (int i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "%d", i);
		cr_assert_eq(other_delete(o, key), 0);
	}
}

/* together: all are opened before the first of them puts. */
static void sixteenth(uint64_t size, int n, bool together)
{
	struct other o[STORES];
	char name[16];
	struct shmstore *s;

	scratch_dir("size=256m");
	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own\n");
	for (int i = 0; i < STORES; i++) {
		snprintf(name, sizeof(name), "s%d", i);
		o[i] = other_start(name);
		if (!together)
			fill_and_idle(&o[i], size, n);
	}
	for (int i = 0; i < STORES && together; i++)
		fill_and_idle(&o[i], size, n);
	s = scratch_store("16th");
	cr_assert_eq(put_pattern(s, "k", 192 * MIB, 2, 0), 0,
		     "%ju of 256 MiB are used, by nobody's objects", (uintmax_t)used());
	cr_assert_eq(get_pattern(s, "k", 192 * MIB, 2), 0);
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	/* They go on as if nothing had been. */
	for (int i = 0; i < STORES; i++) {
		cr_assert_eq(other_put(&o[i], "again", size, 3), 0);
		cr_assert_eq(other_get(&o[i], "again", size, 3), 0);
		cr_assert_eq(other_close(&o[i]), 0);
	}
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(pools_of_idle_stores, large_files)
{
	sixteenth(14 * MIB, 1, false);
}

Test(pools_of_idle_stores, large_files_opened_before)
{
	sixteenth(14 * MIB, 1, true);
}

Test(pools_of_idle_stores, many_files)
{
	sixteenth(MIB, 14, false);
}

/* The ledger, less what others took, against the files. */
static void ensure_pool_is_told(struct shmstore *s)
{
	struct shmstore_store_books books;
	struct shmstore_counters c;

	ensure_books_close();
	shms_page_counters(s->page, &c);
	cr_assert_eq(shms_books_store(s->dir_fd, &books), 0);
	cr_assert_eq(c.pool_bytes, books.pool);
	cr_assert_eq(c.pool_n, books.n_pool);
}

/* Views and leases of what is in somebody's pool keep what they see; the owner
 * goes on with what is left. */
Test(pools_of_idle_stores, view_of_a_taken_file)
{
	struct other o;
	struct shmstore *s, *t;
	struct shmstore_view *v;
	struct shmstore_ticket ticket;

	scratch_dir("size=64m");
	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own\n");
	s = scratch_store("s");
	t = scratch_store("t");
	o = other_start("o");
	for (int i = 0; i < 3; i++) {
		char key[16];

		snprintf(key, sizeof(key), "%d", i);
		cr_assert_eq(put_pattern(s, key, MIB, (uint64_t)i, 0), 0);
	}
	v = get_view(s, "0", 0);
	cr_assert_eq(shmstore_handoff(s, KEY("1"), 60000, &ticket), 0);
	for (int i = 0; i < 3; i++) {
		char key[16];

		snprintf(key, sizeof(key), "%d", i);
		cr_assert_eq(shmstore_delete(s, KEY(key)), 0);
	}
	cr_assert_eq(other_put(&o, "all", 56 * MIB, 9), 0);
	cr_assert_eq(view_pattern(v, MIB, 0), 0);
	cr_assert_eq(shmstore_adopt(t, KEY("1"), &ticket, 0), 0);
	cr_assert_eq(get_pattern(t, "1", MIB, 1), 0);
	cr_assert_eq(other_get(&o, "all", 56 * MIB, 9), 0);
	ensure_pool_is_told(s);
	for (int i = 0; i < 3; i++) {
		char key[16];

		snprintf(key, sizeof(key), "%d", i);
		cr_assert_eq(put_pattern(s, key, MIB, (uint64_t)i + 5, 0), 0);
	}
	ensure_pool_is_told(s);
	cr_assert_eq(view_pattern(v, MIB, 0), 0);
	shmstore_view_unref(v);
	shmstore_close(s);
	shmstore_close(t);
	other_close(&o);
	ensure_nothing_left();
}
