/* SPDX-License-Identifier: Apache-2.0 */
/* A partition gets its tier, its limits change, and it loses it: only where nothing is lost with
 * it, and then without a trace. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "partition.h"
#include "tier.h"
#include "tiered.h"

enum {
	MB = 1 << 20
};

TestSuite(tier_set, .timeout = 120);

static int set(const struct shmstore_tier_config *c)
{
	struct shmstore_partition *p = scratch_partition();
	int r = shmstore_tier_set(p, c);

	shmstore_partition_unref(p);
	return r;
}

static struct shmstore_tier_config config(const char *path)
{
	struct shmstore_tier_config c = SHMSTORE_TIER_CONFIG_INIT;

	c.path = path;
	return c;
}

static int set_path(const char *path)
{
	struct shmstore_tier_config c = config(path);

	return set(&c);
}

static int get_info(struct shmstore_tier_info *ret)
{
	struct shmstore_partition *p = scratch_partition();
	int r = shmstore_tier_info(p, ret);

	shmstore_partition_unref(p);
	return r;
}

/* A directory of the given name in the test's own directory on disk. */
static const char *disk(const char *name)
{
	static char paths[2][TIERED_PATH + 64];
	static unsigned n;
	char *path = paths[n++ % 2];

	snprintf(path, sizeof(paths[0]), "%s/%s", tiered_disk(), name);
	cr_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
	return path;
}

static bool has_tier_directory(void)
{
	char path[SCRATCH_PATH];

	snprintf(path, sizeof(path), "%s/tier", scratch_partition_path());
	return access(path, F_OK) == 0;
}

static struct shmstore *store_with_demoted(const char *name)
{
	struct shmstore *s = scratch_store(name);

	cr_assert_eq(put_pattern(s, "k", MB, 1, 0), 0);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0, "%s", shmstore_error_detail());
	return s;
}

/* ---- what is refused ------------------------------------------------------------------------- */

/* Refused, with a sentence that says why, and nothing was made. */
static void refused(const struct shmstore_tier_config *c, int error, const char *why)
{
	cr_assert_eq(set(c), error, "%s", why);
	cr_assert_not_null(strstr(shmstore_error_detail(), why), "%s: %s", why,
			   shmstore_error_detail());
	cr_assert_not(has_tier_directory());
}

Test(tier_set, what_cannot_be_a_tier_is_refused_with_a_reason)
{
	struct shmstore_tier_config c;

	if (!tiered_disk())
		cr_skip_test("no file system on disk: set SHMSTORE_TEST_DISK\n");
	scratch_partition();
	c = config("relative/path");
	refused(&c, -EINVAL, "absolute");
	c = config("/nonexistent/directory");
	refused(&c, -ENOENT, "/nonexistent/directory");
	c = config("/dev/null");
	refused(&c, -ENOENT, "/dev/null");
	c = config(scratch_dir(NULL));
	refused(&c, -ENOTSUP, "in memory");
	c = config(disk("a"));
	c.level = 20;
	refused(&c, -EINVAL, "level 20");
	c = config(disk("a"));
	c.low = c.high;
	refused(&c, -EINVAL, "watermarks");
	c = config(disk("a"));
	c.high = 101;
	refused(&c, -EINVAL, "watermarks");
	c = config(disk("a"));
	c.size = 8;
	cr_assert_eq(set(&c), -EINVAL);
	cr_assert_eq(shmstore_tier_set(NULL, NULL), -EINVAL);
	cr_assert_eq(set(NULL), 0, "there is none");
}

Test(tier_set, a_partition_on_disk_has_none)
{
	struct shmstore_tier_config c;
	struct shmstore_partition *p;

	if (!tiered_disk())
		cr_skip_test("no file system on disk: set SHMSTORE_TEST_DISK\n");
	c = config(disk("a"));
	cr_assert_eq(shmstore_partition_open(disk("p"), SHMSTORE_CREATE | SHMSTORE_ALLOW_DISK, &p),
		     0);
	cr_assert_eq(shmstore_tier_set(p, &c), -ENOTSUP);
	shmstore_partition_unref(p);
}

static int set_as_nobody(void *arg)
{
	if (setgid(65534) < 0 || setuid(65534) < 0)
		return 1;
	return set(arg) == -EPERM && *shmstore_error_detail() ? 0 : 2;
}

Test(tier_set, only_the_partitions_owner_sets_it)
{
	struct shmstore_tier_config c;

	if (geteuid() != 0 || !tiered_disk())
		cr_skip_test("needs another user (root)");
	c = config(disk("a"));
	scratch_partition();
	cr_assert_eq(chmod(scratch_partition_path(), 0755), 0);
	cr_assert_eq(in_child(set_as_nobody, &c), 0);
	cr_assert_not(has_tier_directory());
}

Test(tier_set, a_tier_directory_that_somebody_planted_is_refused)
{
	char path[SCRATCH_PATH];

	if (geteuid() != 0 || !tiered_disk())
		cr_skip_test("needs another user (root)");
	scratch_partition();
	snprintf(path, sizeof(path), "%s/tier", scratch_partition_path());
	cr_assert_eq(mkdir(path, 0777), 0);
	cr_assert_eq(chown(path, 65534, 65534), 0);
	cr_assert_eq(set_path(disk("a")), -EPERM);
	cr_assert_not_null(strstr(shmstore_error_detail(), "tier"));
	cr_assert_eq(rmdir(path), 0);
}

/* ---- what is set ----------------------------------------------------------------------------- */

Test(tier_set, what_is_set_is_told)
{
	struct shmstore_tier_config c;
	struct shmstore_tier_info i;
	struct shmstore_partition *p;
	char path[8192];
	struct stat st;

	if (!tiered_disk())
		cr_skip_test("no file system on disk: set SHMSTORE_TEST_DISK\n");
	c = config(disk("a"));
	c.max = 123456789012345;
	c.min_free = 77;
	c.level = 7;
	c.fsync = true;
	c.high = 60;
	c.low = 30;
	cr_assert_eq(set(&c), 0, "%s", shmstore_error_detail());
	cr_assert_eq(get_info(&i), 0);
	cr_assert_str_eq(i.config.path, c.path);
	cr_assert_eq(i.config.max, c.max);
	cr_assert_eq(i.config.min_free, 77);
	cr_assert_eq(i.config.level, 7);
	cr_assert(i.config.fsync);
	cr_assert_eq(i.config.high, 60);
	cr_assert_eq(i.config.low, 30);
	cr_assert_gt(i.disk_size, 0);
	cr_assert_leq(i.disk_free, i.disk_size);
	p = scratch_partition();
	snprintf(path, sizeof(path), "%s/%s", c.path, p->uuid);
	cr_assert_str_eq(i.path, path);
	shmstore_partition_unref(p);
	cr_assert_eq(stat(path, &st), 0);
	cr_assert_eq(st.st_mode & 07777, 0700);

	/* The shorter structure of an older program means the defaults for the rest. */
	c.size = offsetof(struct shmstore_tier_config, level);
	cr_assert_eq(set(&c), 0);
	cr_assert_eq(get_info(&i), 0);
	cr_assert_eq(i.config.max, c.max);
	cr_assert_eq(i.config.level, 1);
	cr_assert_eq(i.config.high, 85);
	if (scratch_is_mount())
		ensure_books_close();
}

Test(tier_set, a_symbolic_link_to_the_directory_is_resolved_once)
{
	struct shmstore_tier_info i;
	char link[TIERED_PATH + 64];

	if (!tiered_disk())
		cr_skip_test("no file system on disk: set SHMSTORE_TEST_DISK\n");
	snprintf(link, sizeof(link), "%s/link", tiered_disk());
	cr_assert_eq(symlink(disk("a"), link), 0);
	cr_assert_eq(set_path(link), 0);
	cr_assert_eq(get_info(&i), 0);
	cr_assert_str_eq(i.config.path, disk("a"));
}

Test(tier_set, limits_change_under_demoted_objects)
{
	struct shmstore_tier_config c;
	struct shmstore_tier_info i;
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = store_with_demoted("a");
	c = config(tiered_disk());
	c.max = 5 * MB;
	cr_assert_eq(set(&c), 0, "%s", shmstore_error_detail());
	cr_assert_eq(get_info(&i), 0);
	cr_assert_eq(i.config.max, 5 * MB);
	cr_assert_eq(i.n_demoted, 1);
	cr_assert_eq(get_pattern(s, "k", MB, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(tier_set, a_shared_partitions_tier_is_everybodys_to_use)
{
	struct shmstore_tier_info i;
	struct shmstore_partition *p;
	struct shmstore_tier_config c;
	char path[SCRATCH_PATH];
	struct stat st;

	if (!tiered_disk())
		cr_skip_test("no file system on disk: set SHMSTORE_TEST_DISK\n");
	c = config(disk("a"));
	snprintf(path, sizeof(path), "%s/shared", scratch_dir(NULL));
	cr_assert_eq(shmstore_partition_open(path, SHMSTORE_CREATE | SHMSTORE_SHARED, &p), 0);
	cr_assert_eq(shmstore_tier_set(p, &c), 0, "%s", shmstore_error_detail());
	cr_assert_eq(shmstore_tier_info(p, &i), 0);
	cr_assert_eq(stat(i.path, &st), 0);
	cr_assert_eq(st.st_mode & 07777, 01777);
	snprintf(path, sizeof(path), "%s/shared/tier", scratch_dir(NULL));
	cr_assert_eq(stat(path, &st), 0);
	cr_assert_eq(st.st_mode & 07777, 01777);
	shmstore_partition_unref(p);
}

Test(tier_set, roots_hand_makes_the_owners_tier)
{
	struct shmstore_tier_info i;
	struct stat st;

	if (geteuid() != 0 || !tiered_disk())
		cr_skip_test("needs another user (root)");
	scratch_partition();
	cr_assert_eq(chown(scratch_partition_path(), 65534, 65534), 0);
	cr_assert_eq(set_path(disk("a")), 0, "%s", shmstore_error_detail());
	cr_assert_eq(get_info(&i), 0);
	cr_assert_eq(stat(i.path, &st), 0);
	cr_assert_eq(st.st_uid, 65534);
	cr_assert_eq(set(NULL), 0, "%s", shmstore_error_detail());
}

/* ---- taking away, moving --------------------------------------------------------------------- */

Test(tier_set, a_tier_that_holds_objects_stays)
{
	struct shmstore_tier_info i;
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = store_with_demoted("a");
	cr_assert_eq(set(NULL), -EBUSY);
	cr_assert_not_null(strstr(shmstore_error_detail(), "1 objects"), "%s",
			   shmstore_error_detail());
	cr_assert_eq(set_path(disk("b")), -EBUSY);
	cr_assert_eq(get_info(&i), 0);
	cr_assert_str_eq(i.config.path, tiered_disk());
	cr_assert_eq(get_pattern(s, "k", MB, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(tier_set, without_objects_it_goes_without_a_trace_clean_copies_too)
{
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = store_with_demoted("a");
	cr_assert_eq(shmstore_promote(s, KEY("k"), 0), 0);
	cr_assert_eq(tiered_count_files(), 1);
	cr_assert_eq(set(NULL), 0, "%s", shmstore_error_detail());
	cr_assert_not(has_tier_directory());
	cr_assert_eq(count_dir(tiered_disk()), 0);
	cr_assert_eq(count_in_store("a", "clean"), 0);
	cr_assert_eq(get_pattern(s, "k", MB, 1), 0);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), -ENOENT);
	/* And comes again. */
	cr_assert(tiered_begin(NULL));
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0, "%s", shmstore_error_detail());
	cr_assert_eq(get_pattern(s, "k", MB, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
	if (scratch_is_mount()) {
		ensure_nothing_left();
		ensure_tier_empty();
	}
}

Test(tier_set, without_objects_it_moves)
{
	struct shmstore_tier_info i;
	struct shmstore *s;

	if (!tiered_disk())
		cr_skip_test("no file system on disk: set SHMSTORE_TEST_DISK\n");
	cr_assert_eq(set_path(disk("a")), 0);
	s = store_with_demoted("a");
	cr_assert_eq(shmstore_promote(s, KEY("k"), 0), 0);
	cr_assert_eq(set_path(disk("b")), 0, "%s", shmstore_error_detail());
	cr_assert_eq(count_dir(disk("a")), 0);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0, "%s", shmstore_error_detail());
	cr_assert_eq(get_info(&i), 0);
	cr_assert_eq(i.n_demoted, 1);
	cr_assert_eq(strncmp(i.path, disk("b"), strlen(disk("b"))), 0);
	cr_assert_eq(get_pattern(s, "k", MB, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
}

/* Somebody demotes between the look and the removal: what he has is an anchor that is not alone. */
Test(tier_set, an_anchor_that_comes_meanwhile_stops_it_and_the_configuration_is_put_back)
{
	struct shmstore_tier_info i;
	char anchor[SCRATCH_PATH], stub[SCRATCH_PATH];
	char text[SHMS_STUB_SIZE];

	TIERED_OR_SKIP();
	cr_assert_eq(shmstore_close(store_with_demoted("a")), 0);
	/* Its tier file is not there yet: no count of files sees it. */
	shms_stub_format(&(struct shms_stub){.id = 0xabc, .generation = 1, .header_size = 64},
			 text);
	snprintf(stub, sizeof(stub), "%s/somewhere", scratch_partition_path());
	snprintf(anchor, sizeof(anchor), "%s/tier/%u/0000000000000abc.stub",
		 scratch_partition_path(), (unsigned)geteuid());
	cr_assert_eq(symlink(text, stub), 0);
	cr_assert_eq(link(stub, anchor), 0);
	cr_assert_eq(set(NULL), -EBUSY);
	cr_assert_not_null(strstr(shmstore_error_detail(), "in use"), "%s",
			   shmstore_error_detail());
	cr_assert_eq(get_info(&i), 0);
	cr_assert_str_eq(i.config.path, tiered_disk());
	cr_assert_eq(unlink(stub), 0);
	cr_assert_eq(set(NULL), 0, "%s", shmstore_error_detail());
	cr_assert_not(has_tier_directory());
}

static int hold_lock(void *arg)
{
	(void)arg;
	return set(NULL) == -EBUSY && strstr(shmstore_error_detail(), "another process") ? 0 : 1;
}

Test(tier_set, one_at_a_time)
{
	char path[SCRATCH_PATH];
	int fd;

	TIERED_OR_SKIP();
	snprintf(path, sizeof(path), "%s/tier", scratch_partition_path());
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert_eq(flock(fd, LOCK_EX), 0);
	cr_assert_eq(in_child(hold_lock, NULL), 0);
	close(fd);
	cr_assert_eq(set(NULL), 0);
}

Test(tier_set, a_damaged_configuration_is_said_and_can_be_set_again)
{
	struct shmstore_tier_info i;
	char path[SCRATCH_PATH];
	struct shmstore *s;
	int fd;

	TIERED_OR_SKIP();
	s = store_with_demoted("a");
	snprintf(path, sizeof(path), "%s/tier/config", scratch_partition_path());
	cr_assert_eq(chmod(path, 0600), 0);
	fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	cr_assert_eq(write(fd, "shmstore tier 1\npath", 20), 20);
	close(fd);
	cr_assert_eq(get_info(&i), -EBADMSG);
	cr_assert_neq(*shmstore_error_detail(), '\0');
	if (scratch_is_mount())
		ensure_books_close();
	cr_assert_eq(set_path(disk("elsewhere")), -EBUSY, "that is not where the object is");
	cr_assert_not_null(strstr(shmstore_error_detail(), "where they are"), "%s",
			   shmstore_error_detail());
	cr_assert_eq(count_dir(disk("elsewhere")), 0);
	cr_assert(tiered_begin(NULL));
	cr_assert_eq(get_info(&i), 0);
	cr_assert_eq(i.n_demoted, 1);
	cr_assert_eq(get_pattern(s, "k", MB, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(tier_set, a_configuration_that_somebody_planted_is_not_believed_and_is_replaced)
{
	struct shmstore_tier_info i;
	char path[SCRATCH_PATH];

	if (geteuid() != 0)
		cr_skip_test("needs another user (root)");
	TIERED_OR_SKIP();
	snprintf(path, sizeof(path), "%s/tier/config", scratch_partition_path());
	cr_assert_eq(chown(path, 65534, 65534), 0);
	cr_assert_eq(get_info(&i), -EPERM);
	cr_assert_eq(set(NULL), -EPERM);
	cr_assert(tiered_begin(NULL));
	cr_assert_eq(get_info(&i), 0);
	cr_assert_eq(set(NULL), 0);
}

/* Killed between the renaming of the configuration and the end of taking the tier away. */
Test(tier_set, a_tier_half_taken_away_is_there_again_for_who_sets_it)
{
	char path[SCRATCH_PATH], left[SCRATCH_PATH];
	struct shmstore_tier_info i;
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = store_with_demoted("a");
	snprintf(path, sizeof(path), "%s/tier/config", scratch_partition_path());
	snprintf(left, sizeof(left), "%s/tier/config.new", scratch_partition_path());
	cr_assert_eq(rename(path, left), 0);
	cr_assert_eq(get_info(&i), -ENOENT);
	cr_assert_eq(set_path(disk("elsewhere")), -EBUSY, "its object is where it was");
	cr_assert_eq(get_info(&i), 0);
	cr_assert_eq(i.n_demoted, 1);
	cr_assert_eq(rename(path, left), 0);
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(set(NULL), 0, "%s", shmstore_error_detail());
	cr_assert_not(has_tier_directory());
	cr_assert_eq(count_in_store("", ""), 0);
}
