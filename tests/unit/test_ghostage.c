/* SPDX-License-Identifier: Apache-2.0 */
/* Ages of holds over a series of surveys. */
#include <criterion/criterion.h>

#include "ghostage.h"

static struct ghostage *make(void)
{
	struct ghostage *g;

	cr_assert_eq(ghostage_new(&g), 0);
	return g;
}

Test(ghostage, counts_from_the_first_sight)
{
	struct ghostage *g = make();

	for (uint64_t now = 100; now < 110; now++) {
		ghostage_begin(g);
		cr_assert_eq(ghostage_see(g, 7, 1, now), 100);
		if (now >= 105)
			cr_assert_eq(ghostage_see(g, 7, 2, now), 105,
				     "another process holds it since later");
		ghostage_end(g);
	}
	ghostage_free(g);
}

Test(ghostage, forgets_what_was_not_seen)
{
	struct ghostage *g = make();

	ghostage_begin(g);
	ghostage_see(g, 7, 1, 100);
	ghostage_see(g, 8, 1, 100);
	ghostage_end(g);
	ghostage_begin(g);
	ghostage_see(g, 8, 1, 200);
	ghostage_end(g);
	ghostage_begin(g);
	cr_assert_eq(ghostage_see(g, 7, 1, 300), 300);
	cr_assert_eq(ghostage_see(g, 8, 1, 300), 100);
	ghostage_end(g);
	ghostage_free(g);
}

Test(ghostage, is_told_old_once)
{
	struct ghostage *g = make();

	cr_assert_not(ghostage_is_old(g, 7, 1, 100, 0), "never seen");
	ghostage_begin(g);
	ghostage_see(g, 7, 1, 100);
	cr_assert_not(ghostage_is_old(g, 7, 1, 100, 50));
	ghostage_end(g);
	cr_assert_not(ghostage_is_old(g, 7, 1, 149, 50));
	cr_assert(ghostage_is_old(g, 7, 1, 150, 50));
	cr_assert_not(ghostage_is_old(g, 7, 1, 151, 50));
	/* Gone and come again is another hold. */
	ghostage_begin(g);
	ghostage_end(g);
	ghostage_begin(g);
	ghostage_see(g, 7, 1, 1000);
	cr_assert(ghostage_is_old(g, 7, 1, 1050, 50));
	ghostage_end(g);
	ghostage_free(g);
}

Test(ghostage, many_holds)
{
	struct ghostage *g = make();

	for (uint64_t round = 1; round < 4; round++) {
		ghostage_begin(g);
		for (uint64_t i = 0; i < 10000; i++)
			cr_assert_eq(ghostage_see(g, i / 3, (pid_t)(i % 3), round),
				     round == 3 && i % 2 ? 3 : 1);
		ghostage_end(g);
		if (round == 2) {
			ghostage_begin(g);
			for (uint64_t i = 0; i < 10000; i += 2)
				ghostage_see(g, i / 3, (pid_t)(i % 3), 2);
			ghostage_end(g);
		}
	}
	ghostage_free(g);
}
