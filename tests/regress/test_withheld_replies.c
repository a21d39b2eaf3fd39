/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake daemon of these tests noted a call that may be withheld behind the others, stepped the
 * core, and took the last note back where the call had ended at once. A step that also ended
 * somebody else's call had moved the last note into that one's place: the note that was taken back
 * was a third's, whose reply never came. race_arbiter stood still then, one thread after another.
 */
#include <criterion/criterion.h>

#include "api.h"
#include "arbcase.h"

Test(withheld_replies, one_that_ends_at_once_and_ends_anothers_loses_no_thirds, .timeout = 60)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, 0);
	struct shmstore_arb_reservation r;
	struct arbwaiter first, third;

	cr_assert_eq(shmstore_arb_reserve(c.s, SHMSTORE_ARB_PARTITION, ARB_MIB, NULL, &r), 0);
	arbwaiter_start(&first, c.s, arbcase_task(c.s, 50), 1000, 0);
	cr_assert(fakearb_waits(c.a, 1));
	arbwaiter_start(&third, c.s, arbcase_task(c.s, 5), ARB_MIB, 0);
	cr_assert(fakearb_waits(c.a, 2));
	cr_assert_eq(shmstore_arb_resize(c.s, &r, ARB_MIB - 1000, NULL), 0);
	cr_assert_eq(arbwaiter_end(&first, true), 0);
	cr_assert_eq(fakearb_parked(c.a), 1);
	cr_assert_eq(shmstore_arb_release(c.s, &r), 0);
	cr_assert(fakearb_waits(c.a, 0));
	cr_assert_eq(arbwaiter_end(&third, true), 0);
	arbcase_end(&c);
}
