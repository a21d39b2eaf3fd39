/* SPDX-License-Identifier: Apache-2.0 */
/* Tiers of other partitions below the same directory: what is proved to be gone goes, all else
 * stays, and a dry run tells the same. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "api.h"
#include "mount.h"
#include "tiered.h"
#include "tiergc.h"
#include "tiermark.h"

TestSuite(gcaway, .timeout = 120);

#define NEIGHBOUR "11111111-2222-4333-8444-555555555555"

static const char *neighbour(const char *name)
{
	static char paths[2][TIERED_PATH + 128];
	static unsigned n;
	char *path = paths[n++ % 2];

	snprintf(path, sizeof(paths[0]), "%s/" NEIGHBOUR "%s%s", tiered_disk(), *name ? "/" : "",
		 name);
	return path;
}

/* The tier directory of a partition that we know by its mark only. */
static void make_neighbour(const struct shms_tiermark *mark)
{
	char path[TIERED_PATH + 128];
	int fd;

	cr_assert_eq(mkdir(neighbour(""), 0700), 0);
	snprintf(path, sizeof(path), "%s/7", neighbour(""));
	cr_assert_eq(mkdir(path, 0700), 0);
	tg_write_file(neighbour("7/00000000000000aa"), "a tier file");
	tg_write_file(neighbour("7/00000000000000bb"), "another");
	tg_write_file(neighbour("7/tmp-00000000000000cc"), "half of one");
	if (!mark)
		return;
	fd = open(neighbour(""), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert_eq(shms_tiermark_write(fd, mark, geteuid()), 0);
	close(fd);
}

/* A mark of the neighbour as this host and boot would write it. */
static struct shms_tiermark own_mark(void)
{
	struct shmstore_partition *p = scratch_partition();
	struct shms_tiermark m;

	cr_assert_eq(shms_tiermark_of(p, &m), 0);
	snprintf(m.uuid, sizeof(m.uuid), NEIGHBOUR);
	shmstore_partition_unref(p);
	return m;
}

/* All that gc does is that with the neighbour's tier, and that is why. */
static void neighbour_is(struct gcplan *plan, enum shmstore_gc_what what, const char *why)
{
	tg_gc_one(plan, what);
	cr_assert_str_eq(plan->list[0].path, neighbour(""));
	cr_assert_not_null(strstr(plan->list[0].evidence, why), "%s", plan->list[0].evidence);
}

static void kept(const char *why)
{
	struct gcplan plan;

	neighbour_is(&plan, SHMSTORE_GC_KEPT, why);
	cr_assert(tg_exists(neighbour("7/00000000000000aa")));
}

static void goes(const char *why)
{
	struct gcplan plan;

	neighbour_is(&plan, SHMSTORE_GC_TIER_OF, why);
	cr_assert_eq(plan.report.n_tier, 3);
	cr_assert_eq(plan.report.tier_freed, 4 * 4096u, "the mark too");
	cr_assert_not(tg_exists(neighbour("")));
}

Test(gcaway, the_tier_of_an_earlier_boot_goes)
{
	struct shms_tiermark m;

	TIERED_OR_SKIP();
	m = own_mark();
	if (m.host[0] == '-')
		cr_skip_test("this host has no /etc/machine-id");
	memset(m.boot, '7', 32);
	make_neighbour(&m);
	goes("earlier boot");
}

Test(gcaway, the_tier_of_another_host_stays)
{
	struct shms_tiermark m;

	TIERED_OR_SKIP();
	m = own_mark();
	memset(m.boot, '7', 32);
	memset(m.host, '7', 32);
	make_neighbour(&m);
	kept("another host");
}

Test(gcaway, the_tier_of_a_mounted_partition_stays)
{
	struct shms_tiermark m;

	TIERED_OR_SKIP();
	m = own_mark(); /* on our own file system */
	make_neighbour(&m);
	kept("mounted");
}

/* Unmounted, and mounted again on the same boot: the kernel gave its
 * device number to the new one. */
Test(gcaway, the_tier_of_a_former_mount_of_the_same_device_goes)
{
	struct shms_tiermark m;

	TIERED_OR_SKIP();
	m = own_mark();
	if (!m.fsid)
		cr_skip_test("this kernel has no fsid for a tmpfs");
	m.fsid ^= 1;
	make_neighbour(&m);
	goes("unmounted");
}

Test(gcaway, the_tier_of_a_partition_that_is_mounted_nowhere_goes_if_all_can_be_asked)
{
	struct shms_tiermark m;
	bool whole;

	TIERED_OR_SKIP();
	m = own_mark();
	m.device = makedev(0, (1u << 20) - 2);
	make_neighbour(&m);
	cr_assert_eq(shms_mount_anywhere((dev_t)m.device, &whole), 0);
	if (whole)
		goes("nowhere");
	else
		kept("root");
}

Test(gcaway, a_directory_without_a_mark_stays)
{
	TIERED_OR_SKIP();
	make_neighbour(NULL);
	kept("does not say of which");
}

Test(gcaway, a_mark_that_somebody_else_wrote_proves_nothing)
{
	struct shms_tiermark m;

	if (geteuid() != 0)
		cr_skip_test("needs another user (root)");
	TIERED_OR_SKIP();
	m = own_mark();
	memset(m.boot, '7', 32);
	make_neighbour(&m);
	cr_assert_eq(chown(neighbour("partition"), 65534, 65534), 0);
	kept("does not say of which");
}

Test(gcaway, of_a_partition_that_is_gone_only_what_we_make_goes)
{
	struct shms_tiermark m;
	struct gcplan plan;

	TIERED_OR_SKIP();
	m = own_mark();
	if (m.host[0] == '-')
		cr_skip_test("this host has no /etc/machine-id");
	memset(m.boot, '7', 32);
	make_neighbour(&m);
	tg_write_file(neighbour("7/thesis.txt"), "not ours");
	tg_gc(&plan);
	cr_assert_eq(plan.n, 1);
	cr_assert_eq(plan.list[0].what, SHMSTORE_GC_TIER_OF);
	cr_assert_eq(plan.report.n_tier, 3);
	cr_assert(tg_exists(neighbour("7/thesis.txt")));
	cr_assert(tg_exists(neighbour("partition")), "so that the next gc knows");
	cr_assert_not(tg_exists(neighbour("7/00000000000000aa")));
	cr_assert_eq(unlink(neighbour("7/thesis.txt")), 0);
	tg_gc(&plan);
	cr_assert_not(tg_exists(neighbour("")));
}
