/* SPDX-License-Identifier: Apache-2.0 */
/* A pool whose slots all held files of one size took no file of another size until they
 * aged: nothing was recycled. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "api.h"
#include "recycle.h"

Test(pool_of_other_sizes, another_size_is_recycled)
{
	struct shmstore *s = scratch_store("s");
	char key[16];
	uint64_t inode;

	for (int i = 0; i < 2 * SHMS_RECYCLE_SLOTS; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		cr_assert_eq(put_pattern(s, key, 100000, 1, 0), 0);
	}
	for (int i = 0; i < 2 * SHMS_RECYCLE_SLOTS; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		cr_assert_eq(shmstore_delete(s, KEY(key)), 0);
	}
	cr_assert_eq(put_pattern(s, "a", 300000, 2, 0), 0);
	inode = inode_of("s", "a");
	cr_assert_eq(shmstore_delete(s, KEY("a")), 0);
	cr_assert_eq(put_pattern(s, "b", 300000, 3, 0), 0);
	cr_assert_eq(inode_of("s", "b"), inode, "the same file");
	cr_assert_eq(get_pattern(s, "b", 300000, 3), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
