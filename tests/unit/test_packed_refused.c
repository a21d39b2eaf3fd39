/* SPDX-License-Identifier: Apache-2.0 */
/* A put that finds no room is one refusal, whatever was tried: a segment, a file, an eviction. */
#include <criterion/criterion.h>
#include <errno.h>
#include <shmstore/inspect.h>

#include "api.h"
#include "scratch.h"
#include "tiered.h"

#define SIZE 100000u

TestSuite(packed_refused, .timeout = 60);

static int counters_of(const struct shmstore_store_info *info, void *arg)
{
	*(struct shmstore_counters *)arg = info->counters;
	return 0;
}

static uint64_t refusals(void)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_counters c = {0};

	cr_assert_eq(shmstore_partition_stores(p, counters_of, &c), 0);
	shmstore_partition_unref(p);
	return c.enospc_n;
}

static struct shmstore *open_store(uint64_t pack_max, bool tier)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s;

	scratch_dir("size=8m");
	if (!scratch_is_mount())
		cr_skip_test("needs a tmpfs of its own (root)\n");
	if (tier)
		TIERED_OR_SKIP();
	o.pack_max = pack_max;
	cr_assert_eq(shmstore_open(scratch_partition(), "a", &o, &s), 0);
	return s;
}

/* Puts until one is refused, and then two more. */
static void refused_thrice(struct shmstore *s, unsigned flags)
{
	char key[16];
	int r = 0;

	for (unsigned i = 0; r == 0; i++) {
		snprintf(key, sizeof(key), "%u", i);
		r = put_pattern(s, key, SIZE, i, flags);
	}
	cr_assert_eq(r, -ENOSPC);
	cr_assert_eq(refusals(), 1);
	for (unsigned i = 0; i < 2; i++)
		cr_assert_eq(put_pattern(s, "x", SIZE, 1, flags), -ENOSPC);
	cr_assert_eq(refusals(), 3);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(packed_refused, of_files)
{
	refused_thrice(open_store(0, false), 0);
}

Test(packed_refused, of_packed_objects)
{
	refused_thrice(open_store(1u << 20, false), 0);
}

Test(packed_refused, with_a_tier)
{
	refused_thrice(open_store(1u << 20, true), SHMSTORE_NO_EVICT);
}

/* When all leases are out a handoff needs a file, for which there is no room. */
Test(packed_refused, of_a_handoff_that_needs_a_file)
{
	struct shmstore *s = open_store(1u << 20, false);
	struct shmstore_ticket t;
	unsigned n = 0;
	char key[16];
	int r;

	do {
		snprintf(key, sizeof(key), "%u", n++);
	} while (put_pattern(s, key, SIZE, n, 0) == 0);
	do {
		r = shmstore_handoff(s, "0", 1, 60000, &t);
	} while (r == 0);
	cr_assert_eq(r, -ENOSPC);
	cr_assert_eq(refusals(), 2);
	cr_assert_eq(shmstore_close(s), 0);
}
