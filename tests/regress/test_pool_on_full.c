/* SPDX-License-Identifier: Apache-2.0 */
/* On a full partition a deleted object's pages went into its owner's pool, where
 * nobody else could have them. */
#include <criterion/criterion.h>
#include <errno.h>

#include "api.h"

#define SIZE (2u << 20)

Test(pool_on_full, delete_makes_room_for_others)
{
	char key[16];
	int n = 0;

	scratch_dir("size=64m");
	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own\n");
	struct shmstore *s = scratch_store("s");
	struct other o = other_start("o");

	for (;; n++) {
		snprintf(key, sizeof(key), "%d", n);
		int r = put_pattern(s, key, SIZE, 1, 0);
		if (r == -ENOSPC)
			break;
		cr_assert_eq(r, 0);
	}
	for (int i = 0; i < 10; i++) {
		snprintf(key, sizeof(key), "%d", i);
		cr_assert_eq(other_put(&o, "k", SIZE, 2), -ENOSPC);
		cr_assert_eq(shmstore_delete(s, KEY(key)), 0);
		cr_assert_eq(other_put(&o, "k", SIZE, 2), 0, "delete %d made no room", i);
		cr_assert_eq(other_delete(&o, "k"), 0);
		cr_assert_eq(put_pattern(s, key, SIZE, 1, 0), 0);
	}
	cr_assert_eq(other_close(&o), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
