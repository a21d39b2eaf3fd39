/* SPDX-License-Identifier: Apache-2.0 */
/* gc of one store alone: what goes, what stays and until when, and that no other store is
 * touched. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "api.h"
#include "name.h"

static uint64_t boot_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int reap(const char *store, unsigned flags, struct shmstore_gc_report *ret,
		uint64_t *ret_expiry_ms)
{
	struct shmstore_partition *p = scratch_partition();
	int r = shmstore_partition_reap(p, scratch_store_path(store, ""), flags, NULL, NULL, ret,
					ret_expiry_ms);

	shmstore_partition_unref(p);
	return r;
}

static bool is_there(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

Test(reap, a_dead_store_goes_and_no_other_one)
{
	struct other dead = other_start("dead"), too = other_start("too");
	struct shmstore_gc_report report, dry;
	uint64_t expiry;

	cr_assert_eq(other_put(&dead, "x", 100000, 1), 0);
	cr_assert_eq(other_put(&too, "x", 100000, 1), 0);
	other_kill(&dead);
	other_kill(&too);
	cr_assert_eq(reap("dead", SHMSTORE_GC_DRY_RUN, &dry, &expiry), 0);
	cr_assert(is_there(scratch_store_path("dead", "objects/x")));
	cr_assert_eq(reap("dead", 0, &report, &expiry), 0);
	cr_assert_eq(memcmp(&report, &dry, sizeof(report)), 0);
	cr_assert_eq(report.n_stores, 1);
	cr_assert_eq(report.n_objects, 1);
	cr_assert_geq(report.freed, 100000 + 4096);
	cr_assert_eq(expiry, UINT64_MAX);
	cr_assert_not(is_there(scratch_store_path("dead", "")));
	cr_assert(is_there(scratch_store_path("too", "objects/x")));
	cr_assert_eq(reap("dead", 0, NULL, NULL), -ENOENT);
	ensure_nothing_left();
}

Test(reap, a_live_store_is_busy)
{
	struct shmstore *s = scratch_store("live");

	cr_assert_eq(put_pattern(s, "x", 1000, 1, 0), 0);
	cr_assert_eq(reap("live", 0, NULL, NULL), -EBUSY);
	cr_assert_eq(get_pattern(s, "x", 1000, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(reap("live", 0, NULL, NULL), -ENOENT);
}

Test(reap, leases_stay_until_they_end_and_the_first_end_is_told)
{
	struct other dead = other_start("dead");
	struct shmstore *s = scratch_store("taker");
	struct shmstore_gc_report report;
	struct shmstore_ticket soon, late;
	uint64_t before = boot_ms(), after, expiry;

	cr_assert_eq(other_put(&dead, "x", 100000, 1), 0);
	cr_assert_eq(other_put(&dead, "y", 100000, 2), 0);
	cr_assert_eq(other_handoff(&dead, "x", 3600000, &late), 0);
	cr_assert_eq(other_handoff(&dead, "y", 1800000, &soon), 0);
	after = boot_ms();
	other_kill(&dead);
	cr_assert_eq(reap("dead", 0, &report, &expiry), 0);
	cr_assert_eq(report.n_stores, 0);
	cr_assert_eq(report.n_objects, 2);
	cr_assert_eq(report.freed, 0, "the leases hold the memory");
	cr_assert_geq(expiry, before + 1800000);
	cr_assert_leq(expiry, after + 1800000);
	cr_assert_eq(shmstore_adopt(s, KEY("y"), &soon, 0), 0);
	cr_assert_eq(get_pattern(s, "y", 100000, 2), 0);
	cr_assert_eq(reap("dead", 0, NULL, &expiry), 0);
	cr_assert_geq(expiry, before + 3600000);
	cr_assert_eq(shmstore_adopt(s, KEY("x"), &late, 0), 0);
	cr_assert_eq(reap("dead", 0, &report, &expiry), 0);
	cr_assert_eq(report.n_stores, 1);
	cr_assert_eq(expiry, UINT64_MAX);
	shmstore_close(s);
	ensure_nothing_left();
}

static bool is_past(void *boot_at)
{
	return boot_ms() > *(uint64_t *)boot_at;
}

Test(reap, ended_leases_go)
{
	struct other dead = other_start("dead");
	struct shmstore_gc_report report;
	struct shmstore_ticket t;
	uint64_t expiry = 0;

	cr_assert_eq(other_put(&dead, "x", 100000, 1), 0);
	cr_assert_eq(other_handoff(&dead, "x", 50, &t), 0);
	other_kill(&dead);
	/* Each look tells when to look again, and the first one after that takes all. */
	while (expiry != UINT64_MAX) {
		cr_assert_eq(reap("dead", 0, &report, &expiry), 0);
		cr_assert(expiry == UINT64_MAX || wait_until(is_past, &expiry, 10000),
			  "told to look in %llu ms", (unsigned long long)(expiry - boot_ms()));
	}
	cr_assert_eq(report.n_leases, 1);
	cr_assert_eq(report.n_stores, 1);
	cr_assert_geq(report.freed, 100000);
	ensure_nothing_left();
}

Test(reap, a_kept_store_stays)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_gc_report report;
	struct shmstore *s;

	o.keep = true;
	cr_assert_eq(shmstore_open(p, "kept", &o, &s), 0);
	cr_assert_eq(put_pattern(s, "x", 1000, 1, 0), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(reap("kept", 0, &report, NULL), 0);
	cr_assert_eq(report.n_stores + report.n_objects, 0);
	cr_assert(is_there(scratch_store_path("kept", "objects/x")));
	shmstore_partition_unref(p);
}

static int open_and_die(void *arg)
{
	struct shmstore *s = scratch_store("dead");

	(void)arg;
	return shmstore_set_address(s, "tcp://1.2.3.4:5");
}

Test(reap, its_address_goes_and_another_stores_stays)
{
	struct shmstore *s = scratch_store("other");
	struct shmstore_partition *p = scratch_partition();
	char name[SHMS_PEER_NAME], path[SCRATCH_PATH];

	cr_assert_eq(shmstore_set_address(s, "tcp://6.7.8.9:5"), 0);
	cr_assert_eq(in_child(open_and_die, NULL), 0);
	shms_peer_name("tcp://1.2.3.4:5", name);
	snprintf(path, sizeof(path), "%.200s/peers/%s", scratch_partition_path(), name);
	cr_assert(is_there(path));
	cr_assert_eq(reap("dead", 0, NULL, NULL), 0);
	cr_assert_not(is_there(path));
	cr_assert_eq(shmstore_peer_find(p, "tcp://6.7.8.9:5", NULL, 0), 0);
	/* The address of a dead store that another one has taken over. */
	cr_assert_eq(in_child(open_and_die, NULL), 0);
	cr_assert_eq(shmstore_set_address(s, "tcp://1.2.3.4:5"), 0);
	cr_assert_eq(reap("dead", 0, NULL, NULL), 0);
	cr_assert_eq(shmstore_peer_find(p, "tcp://1.2.3.4:5", NULL, 0), 0);
	shmstore_partition_unref(p);
	shmstore_close(s);
	ensure_nothing_left();
}

Test(reap, wrong_arguments_are_refused)
{
	struct shmstore_partition *p = scratch_partition();
	char path[SCRATCH_PATH];

	cr_assert_eq(shmstore_partition_reap(NULL, "/x", 0, NULL, NULL, NULL, NULL), -EINVAL);
	cr_assert_eq(shmstore_partition_reap(p, NULL, 0, NULL, NULL, NULL, NULL), -EINVAL);
	cr_assert_eq(shmstore_partition_reap(p, "/x", 1u << 9, NULL, NULL, NULL, NULL), -EINVAL);
	cr_assert_eq(shmstore_partition_reap(p, "/tmp", 0, NULL, NULL, NULL, NULL), -EPERM);
	cr_assert_eq(
		shmstore_partition_reap(p, scratch_partition_path(), 0, NULL, NULL, NULL, NULL),
		-EPERM);
	snprintf(path, sizeof(path), "%.200s/stores", scratch_partition_path());
	cr_assert_eq(shmstore_partition_reap(p, path, 0, NULL, NULL, NULL, NULL), -ENOENT);
	snprintf(path, sizeof(path), "%.200s/../x", scratch_partition_path());
	cr_assert_lt(shmstore_partition_reap(p, path, 0, NULL, NULL, NULL, NULL), 0);
	/* No symlink is followed. */
	other_kill(&(struct other){.pid = other_start("dead").pid, .to = -1, .from = -1});
	snprintf(path, sizeof(path), "%.200s/link", scratch_partition_path());
	cr_assert_eq(symlink("stores/dead", path), 0);
	cr_assert_lt(shmstore_partition_reap(p, path, 0, NULL, NULL, NULL, NULL), 0);
	cr_assert(is_there(scratch_store_path("dead", ".store")));
	cr_assert_eq(unlink(path), 0);
	shmstore_partition_unref(p);
}
