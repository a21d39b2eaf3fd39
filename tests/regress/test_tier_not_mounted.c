/* SPDX-License-Identifier: Apache-2.0 */
/* A process that opened a tier whose disk was not mounted made the tier's directory below
 * the mount point, and demoted to there. */
#include <criterion/criterion.h>
#include <errno.h>
#include <shmstore/inspect.h>
#include <stdio.h>
#include <unistd.h>

#include "api.h"
#include "tiered.h"

Test(tier_not_mounted, nothing_is_demoted_below_the_mount_point)
{
	struct shmstore_partition_info info = {.size = sizeof(info)};
	char there[TIERED_PATH + 64], away[TIERED_PATH + 64];

	scratch_dir("size=64m");
	TIERED_OR_SKIP();
	struct other s = other_start("s");
	cr_assert_eq(other_put(&s, "k", 300000, 1), 0);
	cr_assert_eq(other_demote(&s, "k"), 0);
	cr_assert_eq(shmstore_partition_info(scratch_partition(), &info), 0);
	snprintf(there, sizeof(there), "%s/%s", tiered_disk(), info.uuid);
	snprintf(away, sizeof(away), "%s/away", tiered_disk());
	cr_assert_eq(rename(there, away), 0);

	struct other o = other_start("o");
	cr_assert_eq(other_put(&o, "k", 300000, 2), 0);
	cr_assert_lt(other_demote(&o, "k"), 0);
	cr_assert_eq(access(there, F_OK), -1);
	cr_assert_eq(other_get(&o, "k", 300000, 2), 0);
	cr_assert_eq(rename(away, there), 0);
	cr_assert_eq(other_demote(&o, "k"), 0);
	cr_assert_eq(other_get(&o, "k", 300000, 2), 0);
	cr_assert_eq(other_get(&s, "k", 300000, 1), 0);
	cr_assert_eq(other_close(&o), 0);
	cr_assert_eq(other_close(&s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}
