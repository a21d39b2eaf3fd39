/* SPDX-License-Identifier: Apache-2.0 */
/* Idle stores kept the memory of the packed objects that they had deleted: a sixteenth of the
 * partition each, however many they were. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "api.h"
#include "books.h"

#define STORES 15
#define MIB    (UINT64_C(1) << 20)

static void fill_and_idle(struct other *o)
{
	char key[16];

	for (int i = 0; i < 17; i++) {
		snprintf(key, sizeof(key), "%d", i);
		cr_assert_eq(other_put(o, key, 900000, 1), 0);
	}
	for (int i = 0; i < 17; i++) {
		snprintf(key, sizeof(key), "%d", i);
		cr_assert_eq(other_delete(o, key), 0);
	}
}

Test(packed_idle_pools, have_a_quarter_together)
{
	struct other o[STORES];
	char name[16];

	cr_assert_eq(setenv("SHMSTORE_PACK_MAX", "1048576", 1), 0);
	scratch_dir("size=256m");
	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own\n");
	for (int i = 0; i < STORES; i++) {
		snprintf(name, sizeof(name), "s%d", i);
		o[i] = other_start(name);
	}
	for (int i = 0; i < STORES; i++)
		fill_and_idle(&o[i]);
	cr_assert_leq(ensure_books_close().pool, 64 * MIB);
	for (int i = 0; i < STORES; i++) {
		cr_assert_eq(other_put(&o[i], "again", 900000, 3), 0);
		cr_assert_eq(other_get(&o[i], "again", 900000, 3), 0);
		cr_assert_eq(other_close(&o[i]), 0);
	}
	ensure_nothing_left();
}
