/* SPDX-License-Identifier: Apache-2.0 */
/* The disk's limits hold for what is being written, too: claims count until they are
 * given back, and not after. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "api.h"
#include "tier.h"
#include "tiered.h"

enum {
	MB = 1 << 20
};

TestSuite(tier_claim, .timeout = 120);

static struct shmstore_partition *p;
static struct shms_tier *t;

/* The partition's tier, open, with a limit. False: no disk; the test is skipped. */
static bool begin(uint64_t max)
{
	struct shmstore_tier_config c = SHMSTORE_TIER_CONFIG_INIT;

	c.max = max;
	c.level = 0;
	if (!tiered_begin(&c))
		return false;
	p = scratch_partition();
	cr_assert_eq(shms_tier_own(p, &t), 0);
	return true;
}

Test(tier_claim, what_is_under_way_counts)
{
	if (!begin(4 * MB))
		cr_skip_test("no disk");
	cr_expect_eq(shms_tier_claim(t, 3 * MB), 0);
	cr_expect_eq(shms_tier_claim(t, 2 * MB), -ENOSPC);
	cr_expect(strncmp(shmstore_error_detail(), "disk full: ", 11) == 0, "%s",
		  shmstore_error_detail());
	cr_expect_eq(shms_tier_claim(t, MB), 0);
	cr_expect_eq(shms_tier_claim(t, 1), -ENOSPC);
	shms_tier_settle(t, 3 * MB, 0);
	cr_expect_eq(shms_tier_claim(t, 3 * MB), 0);
	shms_tier_settle(t, 4 * MB, 0);
	shmstore_partition_unref(p);
}

/* All that is free on the disk may be claimed once. */
Test(tier_claim, the_disk_itself_is_claimed_once)
{
	struct shmstore_tier_info info = {.size = sizeof(info)};

	if (!begin(0))
		cr_skip_test("no disk");
	cr_assert_eq(shmstore_tier_info(p, &info), 0);
	cr_assert_eq(shms_tier_claim(t, info.disk_free / 4 * 3), 0);
	cr_expect_eq(shms_tier_claim(t, info.disk_free / 4 * 3), -ENOSPC);
	shms_tier_settle(t, info.disk_free / 4 * 3, 0);
	cr_expect_eq(shms_tier_claim(t, info.disk_free / 4 * 3), 0);
	shms_tier_settle(t, info.disk_free / 4 * 3, 0);
	shmstore_partition_unref(p);
}

/* Whether it was moved or refused: nothing stays claimed. */
Test(tier_claim, demotions_give_back_what_they_took)
{
	struct shmstore *s;

	if (!begin(4 * MB))
		cr_skip_test("no disk");
	s = scratch_store("s");
	for (int i = 0; i < 8; i++) {
		char key[2] = {(char)('a' + i), 0};

		cr_assert_eq(put_pattern(s, key, MB, 1, 0), 0);
		cr_expect_eq(shmstore_demote(s, KEY(key), 0), i < 3 ? 0 : -ENOSPC, "%d", i);
	}
	cr_expect_eq(shmstore_delete(s, KEY("a")), 0);
	cr_expect_eq(shmstore_demote(s, KEY("h"), 0), 0);
	cr_expect_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
}
