/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where root (the daemon, as a rule) demoted a user's object of a long key, the file that keeps the
 * key was root's: the user could neither get nor put nor delete that key any more.
 */
#include <criterion/criterion.h>
#include <libgen.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "tiered.h"

#define USER 54321
#define SIZE 300000

static char shared[512], key[300];

static struct shmstore *open_as_user(void)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p;
	struct shmstore *s;

	ENSURE(setresgid(USER, USER, USER) == 0 && setresuid(USER, USER, USER) == 0);
	o.keep = true;
	ENSURE(shmstore_partition_open(shared, 0, &p) == 0);
	ENSURE(shmstore_open(p, "s", &o, &s) == 0);
	shmstore_partition_unref(p);
	return s;
}

static int leave_object(void *arg)
{
	struct shmstore *s = open_as_user();

	(void)arg;
	ENSURE(put_pattern(s, key, SIZE, 1, 0) == 0);
	ENSURE(shmstore_close(s) == 0);
	return 0;
}

static int use_object(void *arg)
{
	struct shmstore *s = open_as_user();

	(void)arg;
	ENSURE(shmstore_locate(s, KEY(key)) == SHMSTORE_IN_TIER);
	ENSURE(get_pattern(s, key, SIZE, 1) == 0);
	ENSURE(put_pattern(s, key, SIZE, 2, SHMSTORE_REPLACE) == 0);
	ENSURE(get_pattern(s, key, SIZE, 2) == 0);
	ENSURE(shmstore_delete(s, KEY(key)) == 0);
	ENSURE(shmstore_close(s) == 0);
	return 0;
}

Test(tier_sidecar_owner, what_root_demotes_its_owner_finds)
{
	struct shmstore_tier_config config = SHMSTORE_TIER_CONFIG_INIT;
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	struct shmstore_evict_report report = {.size = sizeof(report)};
	struct shmstore_partition *p;
	char above[TIERED_PATH];

	if (geteuid() != 0 || !scratch_is_mount())
		cr_skip_test("needs root\n");
	if (!tiered_disk())
		cr_skip_test("no file system on disk: set SHMSTORE_TEST_DISK\n");
	snprintf(above, sizeof(above), "%s", tiered_disk());
	cr_assert_eq(chmod(above, 0755), 0);
	cr_assert_eq(chmod(dirname(above), 0755), 0);
	snprintf(shared, sizeof(shared), "%s/shared", scratch_dir(NULL));
	cr_assert_eq(chmod(scratch_dir(NULL), 0755), 0);
	cr_assert_eq(shmstore_partition_open(shared, SHMSTORE_CREATE | SHMSTORE_SHARED, &p), 0);
	config.path = tiered_disk();
	cr_assert_eq(shmstore_tier_set(p, &config), 0, "%s", shmstore_error_detail());
	memset(key, 'k', sizeof(key) - 1);
	cr_assert_eq(in_child(leave_object, NULL), 0);
	what.bytes = 1ull << 40;
	shmstore_partition_evict(p, &what, &report);
	cr_assert_eq(report.n_objects, 1);
	cr_assert_eq(in_child(use_object, NULL), 0);
	shmstore_partition_unref(p);
}
