/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file in its maker's pool may be another store's object still, or again nobody's, and be pinned.
 * It came out of the pool pinned: the next object in it could not be evicted, though nobody had
 * pinned it. And to look whether it was free again took the other store's pin away.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <sys/stat.h>

#include "api.h"

static bool is_pinned(const char *store, const char *key)
{
	char rest[32];
	struct stat st;

	snprintf(rest, sizeof(rest), "objects/%s", key);
	cr_assert_eq(stat(scratch_store_path(store, rest), &st), 0);
	return st.st_mode & S_ISVTX;
}

/* Object a of s is object b of t, too, and pinned by that name. */
static void pin_elsewhere(struct shmstore *s, struct shmstore *t, uint64_t size)
{
	struct shmstore_ticket ticket;

	/* A large file is taken by its maker's pool when it is deleted, a small
	 * one when it came from there. */
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(put_pattern(s, "a", size, 1, 0), 0);
		cr_assert_eq(shmstore_delete(s, KEY("a")), 0);
	}
	cr_assert_eq(put_pattern(s, "a", size, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("a"), 60000, &ticket), 0);
	cr_assert_eq(shmstore_adopt(t, KEY("b"), &ticket, 0), 0);
	cr_assert_eq(shmstore_pin(t, KEY("b"), true), 0);
	cr_assert(is_pinned("s", "a"));
}

static void nobody_has_it(uint64_t size)
{
	struct shmstore *s = scratch_store("s"), *t = scratch_store("t");
	uint64_t inode;

	pin_elsewhere(s, t, size);
	inode = inode_of("s", "a");
	cr_assert_eq(shmstore_delete(t, KEY("b")), 0);
	cr_assert_eq(shmstore_delete(s, KEY("a")), 0);
	cr_assert_eq(put_pattern(s, "c", size, 2, 0), 0);
	cr_assert_eq(inode_of("s", "c"), inode, "the same file");
	cr_assert_not(is_pinned("s", "c"));
	cr_assert_eq(get_pattern(s, "c", size, 2), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(shmstore_close(t), 0);
	ensure_nothing_left();
}

Test(pinned_elsewhere_recycled, small)
{
	nobody_has_it(100000);
}

Test(pinned_elsewhere_recycled, large)
{
	nobody_has_it(8u << 20);
}

/* In a small pool a file that others came after is closed, and opened again
 * to look whether it is free. */
static void close_oldest(struct shmstore *s)
{
	cr_assert_eq(put_pattern(s, "x", 1900000, 3, 0), 0);
	cr_assert_eq(put_pattern(s, "y", 1900000, 4, 0), 0);
	cr_assert_eq(shmstore_delete(s, KEY("x")), 0);
	cr_assert_eq(shmstore_delete(s, KEY("y")), 0);
}

Test(pinned_elsewhere_recycled, still_the_others)
{
	struct shmstore *s, *t;

	scratch_dir("size=80m");
	s = scratch_store("s");
	t = scratch_store("t");
	pin_elsewhere(s, t, 1000000);
	cr_assert_eq(shmstore_delete(s, KEY("a")), 0);
	close_oldest(s);
	cr_assert_eq(put_pattern(s, "c", 1000000, 2, 0), 0);
	cr_assert(is_pinned("t", "b"));
	cr_assert_not(is_pinned("s", "c"));
	cr_assert_eq(get_pattern(t, "b", 1000000, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(shmstore_close(t), 0);
	ensure_nothing_left();
}
