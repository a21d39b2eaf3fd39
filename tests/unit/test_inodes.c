/* SPDX-License-Identifier: Apache-2.0 */
/* The set of inodes: one entry for each number, whatever the numbers look
 * like, however many there are. */
#include <criterion/criterion.h>

#include "inodes.h"

/* Puts n numbers in, step apart, twice each; all must be there once, with
 * what was written to them. */
static void fill(uint64_t first, uint64_t step, uint64_t n)
{
	struct shms_inodes *s = shms_inodes_new();
	const struct shms_inode *e;
	uint64_t cursor = 0, found = 0;

	for (int round = 0; round < 2; round++) {
		for (uint64_t i = 0; i < n; i++) {
			struct shms_inode *one = shms_inodes_get(s, first + i * step);

			cr_assert_not_null(one);
			cr_assert_eq(one->ino, first + i * step);
			cr_assert_eq(one->n_here, (uint32_t)round,
				     "a new entry is zeroed, an old one kept");
			cr_assert_eq(one->bytes, round ? i : 0);
			one->n_here++;
			one->bytes = i;
		}
	}
	while ((e = shms_inodes_next(s, &cursor)) != NULL) {
		cr_assert_eq(e->n_here, 2);
		found++;
	}
	cr_assert_eq(found, n);
	shms_inodes_free(s);
}

Test(inodes, consecutive_numbers)
{
	fill(1, 1, 100000);
}

Test(inodes, numbers_of_one_store_of_many)
{
	fill(3, 256, 100000);
	fill(1, 4096, 50000);
}

Test(inodes, large_and_odd_numbers)
{
	fill(0, 1, 10);
	fill(UINT64_MAX - 999, 1, 1000);
	fill(1, (uint64_t)1 << 32, 20000);
	fill(12345, 0x9E3779B97F4A7C15u, 20000);
}

Test(inodes, looking_makes_no_entry)
{
	struct shms_inodes *s = shms_inodes_new();
	uint64_t cursor = 0;

	cr_assert_null(shms_inodes_find(s, 7));
	cr_assert_null(shms_inodes_next(s, &cursor));
	cr_assert_eq(shms_inodes_get(s, 7), shms_inodes_find(s, 7));
	cr_assert_null(shms_inodes_find(s, 8));
	shms_inodes_free(s);
}

Test(inodes, an_empty_set_has_no_entries)
{
	struct shms_inodes *s = shms_inodes_new();
	uint64_t cursor = 0;

	cr_assert_null(shms_inodes_next(s, &cursor));
	cr_assert_null(shms_inodes_free(s));
	cr_assert_null(shms_inodes_free(NULL));
}
