/* SPDX-License-Identifier: Apache-2.0 */
/* What gc gives back of stores that pack. */
#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "api.h"

#define MAX         (64u << 10)
#define HALVED      200u
#define HALVED_SIZE 30000u

static const char *halved_key(unsigned i)
{
	static char key[16];

	snprintf(key, sizeof(key), "h%u", i);
	return key;
}

/* Of a kept store: every other object is deleted, and what they had is its pool. */
static int be_killed_with_a_pool(void *arg)
{
	struct shmstore *s = packing_store("a", MAX, true);
	int r = 0;

	(void)arg;
	for (unsigned i = 0; i < HALVED && r == 0; i++)
		r = put_pattern(s, halved_key(i), HALVED_SIZE, i, 0);
	for (unsigned i = 0; i < HALVED && r == 0; i += 2)
		r = shmstore_delete(s, halved_key(i), strlen(halved_key(i)));
	if (r == 0)
		kill(getpid(), SIGKILL);
	return 1;
}

Test(packed_gc, pool_of_a_dead_kept_store_goes)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_gc_report report;
	struct shmstore_usage before, after;
	struct shmstore *s;

	cr_assert_eq(in_child(be_killed_with_a_pool, NULL), 1000 + SIGKILL);
	cr_assert_eq(shmstore_partition_usage(p, SHMSTORE_USAGE_FULL, &before), 0);
	cr_assert_eq(shmstore_partition_gc(p, 0, &report), 0);
	cr_assert_eq(shmstore_partition_usage(p, SHMSTORE_USAGE_FULL, &after), 0);
	cr_assert_geq(report.freed, HALVED / 2 * 6 * 4096, "of each that was deleted the whole pages");
	if (scratch_is_mount())
		cr_assert_eq(after.used + report.freed, before.used);
	ensure_books_close();
	s = packing_store("a", MAX, true);
	for (unsigned i = 0; i < HALVED; i += 2)
		cr_assert_eq(put_pattern(s, halved_key(i), HALVED_SIZE, i, 0), 0);
	for (unsigned i = 0; i < HALVED; i++)
		cr_assert(get_pattern(s, halved_key(i), HALVED_SIZE, i) == 0, "%u", i);
	cr_assert_eq(count_packed_objects(s), HALVED);
	cr_assert_eq(shmstore_close(s), 0);
	s = packing_store("a", MAX, false);
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
	ensure_books_close();
}
