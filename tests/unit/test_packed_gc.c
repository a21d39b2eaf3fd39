/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that gc gives back of stores that pack. */
#include <criterion/criterion.h>
#include <shmstore/inspect.h>
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
	cr_assert_geq(report.freed, HALVED / 2 * 6 * 4096,
		      "of each that was deleted the whole pages");
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

static bool lease_is_past(void *arg)
{
	return shmstore_lease_clock_ms() > *(uint64_t *)arg + 4000; /* ends are in units of 2 s */
}

static int count_leases(const struct shmstore_gc_action *a, void *arg)
{
	if (a->what == SHMSTORE_GC_LEASE)
		*(uint64_t *)arg += a->n_objects;
	return 0;
}

/* Of a live store, as leases of files are; the object stays. */
Test(packed_gc, ended_leases_are_counted_and_go)
{
	struct shmstore *s = packing_store("a", MAX, false);
	struct shmstore_partition *p = scratch_partition();
	uint64_t now = shmstore_lease_clock_ms(), n = 0;
	struct shmstore_gc_report report;
	struct shmstore_ticket t;

	cr_assert_eq(put_pattern(s, "k", 1000, 1, 0), 0);
	cr_assert_eq(put_pattern(s, "l", 1000, 2, 0), 0);
	for (unsigned i = 0; i < 3; i++)
		cr_assert_eq(shmstore_handoff(s, KEY("k"), 1, &t), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("l"), 60000, &t), 0);
	cr_assert(wait_until(lease_is_past, &now, 60000));
	cr_assert_eq(shmstore_partition_gc_plan(p, 0, count_leases, &n, &report), 0);
	cr_assert_eq(report.n_leases, 3);
	cr_assert_eq(n, 3);
	cr_assert_eq(shmstore_partition_gc(p, 0, &report), 0);
	cr_assert_eq(report.n_leases, 0);
	cr_assert_eq(get_pattern(s, "k", 1000, 1), 0);
	cr_assert_eq(shmstore_adopt(s, KEY("l"), &t, 0), 0, "it has not ended");
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
	ensure_nothing_left();
}
