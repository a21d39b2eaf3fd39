/* SPDX-License-Identifier: Apache-2.0 */
/*
 * It is the object that is pinned, whatever the name. Unpinned by a name that was a stub still,
 * while another name had brought the object back and pinned it, it stayed pinned.
 */
#include <criterion/criterion.h>
#include <errno.h>

#include "api.h"
#include "tiered.h"

static void two_names(struct shmstore **ret_s, struct shmstore **ret_t)
{
	struct shmstore_ticket ticket;

	*ret_s = scratch_store("s");
	*ret_t = scratch_store("t");
	cr_assert_eq(put_pattern(*ret_s, "a", 100000, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(*ret_s, KEY("a"), 60000, &ticket), 0);
	cr_assert_eq(shmstore_adopt(*ret_t, KEY("b"), &ticket, 0), 0);
	cr_assert_eq(shmstore_demote(*ret_s, KEY("a"), 0), 0);
	cr_assert_eq(shmstore_locate(*ret_t, KEY("b")), SHMSTORE_IN_TIER);
}

Test(tier_unpin_by_stub, any_name_unpins)
{
	struct shmstore *s, *t;

	TIERED_OR_SKIP();
	two_names(&s, &t);
	cr_assert_eq(shmstore_pin(s, KEY("a"), true), 0);
	cr_assert_eq(shmstore_demote(s, KEY("a"), 0), -EPERM);
	cr_assert_eq(shmstore_locate(t, KEY("b")), SHMSTORE_IN_TIER);
	cr_assert_eq(shmstore_pin(t, KEY("b"), false), 0);
	cr_assert_eq(shmstore_demote(s, KEY("a"), 0), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(shmstore_close(t), 0);
	ensure_nothing_left();
}

Test(tier_unpin_by_stub, nobody_has_brought_it_back)
{
	struct shmstore *s, *t;

	TIERED_OR_SKIP();
	two_names(&s, &t);
	cr_assert_eq(shmstore_pin(t, KEY("b"), false), 0);
	cr_assert_eq(shmstore_locate(t, KEY("b")), SHMSTORE_IN_TIER);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(shmstore_close(t), 0);
	ensure_nothing_left();
}
