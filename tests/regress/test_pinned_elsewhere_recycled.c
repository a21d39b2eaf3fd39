/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file whose object was pinned by a name of another store came back from its maker's pool pinned: the next object in it could not be
 * evicted, though nobody had pinned it.
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

static void of_size(uint64_t size)
{
	struct shmstore *s = scratch_store("s"), *t = scratch_store("t");
	struct shmstore_ticket ticket;
	uint64_t inode;

	/* What is large is taken by its maker's pool when it is deleted, what is small when it came from there. */
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(put_pattern(s, "a", size, 1, 0), 0);
		cr_assert_eq(shmstore_delete(s, KEY("a")), 0);
	}
	cr_assert_eq(put_pattern(s, "a", size, 1, 0), 0);
	inode = inode_of("s", "a");
	cr_assert_eq(shmstore_handoff(s, KEY("a"), 60000, &ticket), 0);
	cr_assert_eq(shmstore_adopt(t, KEY("b"), &ticket, 0), 0);
	cr_assert_eq(shmstore_pin(t, KEY("b"), true), 0);
	cr_assert(is_pinned("s", "a"));
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
	of_size(100000);
}

Test(pinned_elsewhere_recycled, large)
{
	of_size(8u << 20);
}
