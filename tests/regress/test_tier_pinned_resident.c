/* SPDX-License-Identifier: Apache-2.0 */
/*
 * It is the object that is pinned, whatever the name. When the name that had brought a pinned
 * object back was deleted, an eviction took it out of memory, because the other names were stubs
 * still; brought back by one of those, it was pinned no longer.
 */
#include <criterion/criterion.h>
#include <errno.h>

#include "api.h"
#include "tiered.h"

Test(tier_pinned_resident, stays_for_the_other_name)
{
	struct shmstore_evict everything = SHMSTORE_EVICT_INIT;
	struct shmstore_ticket ticket;
	struct shmstore *s, *t;
	int rc;

	TIERED_OR_SKIP();
	s = scratch_store("s");
	t = scratch_store("t");
	cr_assert_eq(put_pattern(s, "a", 100000, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("a"), 60000, &ticket), 0);
	cr_assert_eq(shmstore_adopt(t, KEY("b"), &ticket, 0), 0);
	cr_assert_eq(shmstore_demote(s, KEY("a"), 0), 0);
	cr_assert_eq(shmstore_pin(s, KEY("a"), true), 0);
	cr_assert_eq(shmstore_delete(s, KEY("a")), 0);
	cr_assert_eq(shmstore_locate(t, KEY("b")), SHMSTORE_IN_TIER);

	everything.bytes = 1ull << 40;
	rc = shmstore_partition_evict(scratch_partition(), &everything, NULL);
	cr_assert(rc == 0 || rc == -ENOSPC, "%d", rc);
	cr_assert_eq(get_pattern(t, "b", 100000, 1), 0);
	cr_assert_eq(shmstore_demote(t, KEY("b"), 0), -EPERM, "it is pinned");

	cr_assert_eq(shmstore_pin(t, KEY("b"), false), 0);
	cr_assert_eq(shmstore_demote(t, KEY("b"), 0), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(shmstore_close(t), 0);
	ensure_nothing_left();
}
