/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recycled file may own more than its object needs. The excess is bounded, comes back when the
 * slot leaves the object, and neither the object nor a view of it notices.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <sys/stat.h>

#include "api.h"
#include "recycle.h"

enum {
	LARGE = 1200000,
	SMALL = 850000,
	OTHER = 5000
};

static uint64_t blocks_of(const char *store, const char *key)
{
	char name[64];
	struct stat st;

	snprintf(name, sizeof(name), "objects/%s", key);
	cr_assert_eq(stat(scratch_store_path(store, name), &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

/* "k": a small object in the file of a large one. */
static struct shmstore *store_with_slack(void)
{
	struct shmstore *s = scratch_store("s");
	uint64_t inode;

	cr_assert_eq(put_pattern(s, "large", LARGE, 1, 0), 0);
	inode = inode_of("s", "large");
	cr_assert_eq(shmstore_delete(s, KEY("large")), 0);
	cr_assert_eq(put_pattern(s, "k", SMALL, 2, 0), 0);
	cr_assert_eq(inode_of("s", "k"), inode, "the same file");
	cr_assert_geq(blocks_of("s", "k"), LARGE);
	return s;
}

Test(recycle_slack, given_back_when_the_slot_goes_to_another)
{
	struct shmstore *s = store_with_slack();
	struct shmstore_view *v = get_view(s, "k", 0);
	char key[16];

	for (int i = 0; i < SHMS_RECYCLE_SLOTS; i++) {
		snprintf(key, sizeof(key), "o%d", i);
		cr_assert_eq(put_pattern(s, key, OTHER, 3, 0), 0);
	}
	cr_assert_lt(blocks_of("s", "k"), SMALL + 3 * 4096);
	cr_assert_geq(blocks_of("s", "k"), SMALL);
	cr_assert_eq(view_pattern(v, SMALL, 2), 0, "a view from before");
	cr_assert_eq(get_pattern(s, "k", SMALL, 2), 0, "a view from after");
	shmstore_view_unref(v);
	ensure_books_close();
	/* A file with a hole is not written again: it would take memory that may not be there. */
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	cr_assert_eq(put_pattern(s, "l", LARGE, 4, 0), 0);
	cr_assert_eq(get_pattern(s, "l", LARGE, 4), 0);
	ensure_books_close();
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(recycle_slack, given_back_by_a_kept_store_that_closes)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s;

	options.keep = true;
	cr_assert_eq(shmstore_open(p, "s", &options, &s), 0);
	cr_assert_eq(put_pattern(s, "large", LARGE, 1, 0), 0);
	cr_assert_eq(shmstore_delete(s, KEY("large")), 0);
	cr_assert_eq(put_pattern(s, "k", SMALL, 2, 0), 0);
	cr_assert_geq(blocks_of("s", "k"), LARGE);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_lt(blocks_of("s", "k"), SMALL + 3 * 4096);
	s = scratch_store("s");
	cr_assert_eq(get_pattern(s, "k", SMALL, 2), 0);
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
}

Test(recycle_slack, never_more_than_a_third)
{
	struct shmstore *s = scratch_store("s");
	uint64_t inode;

	cr_assert_eq(put_pattern(s, "large", LARGE, 1, 0), 0);
	inode = inode_of("s", "large");
	cr_assert_eq(shmstore_delete(s, KEY("large")), 0);
	cr_assert_eq(put_pattern(s, "k", LARGE / 2, 2, 0), 0);
	cr_assert_neq(inode_of("s", "k"), inode);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
