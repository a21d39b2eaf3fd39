/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tests run gc on a disk tier that killed processes left half-done: made here by hand, name by
 * name. In each case a dry run tells what a run does, to the byte of memory and of disk.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "api.h"
#include "tier.h"
#include "tiered.h"
#include "tiergc.h"

TestSuite(tier_gc_torn, .timeout = 120);

Test(tier_gc_torn, an_anchor_that_nobody_names_goes_with_its_tier_file)
{
	struct gcplan plan;
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = scratch_store("a");
	cr_assert_eq(put_pattern(s, "k", MB, 1, 0), 0);
	tg_demote(s, "k");
	cr_assert_eq(unlink(scratch_store_path("a", "objects/k")), 0); /* and killed */
	tg_gc_one(&plan, SHMSTORE_GC_ANCHOR);
	cr_assert_geq(plan.list[0].tier_bytes, MB);
	cr_assert_eq(plan.report.n_tier, 1);
	ensure_tier_empty();
	tg_gc(&plan);
	cr_assert_eq(plan.n, 0);
	tg_end(s);
}

Test(tier_gc_torn, a_resident_goes_with_an_anchor_that_nobody_names)
{
	struct shms_stub stub;
	struct gcplan plan;
	struct shmstore *s;
	char name[SHMS_TIER_NAME];

	TIERED_OR_SKIP();
	s = scratch_store("a");
	cr_assert_eq(put_pattern(s, "k", MB, 1, 0), 0);
	tg_demote(s, "k");
	tg_promote(s, "k");
	cr_assert(tiered_stub("a", SHMS_DIR_CLEAN, "k", &stub));
	shms_tier_resident_name(stub.id, name);
	if (!tg_exists(tg_anchors(name)))
		cr_assert_eq(link(scratch_store_path("a", "objects/k"), tg_anchors(name)), 0);
	cr_assert_eq(unlink(scratch_store_path("a", "objects/k")), 0);
	cr_assert_eq(unlink(scratch_store_path("a", "clean/k")), 0);
	tg_gc_one(&plan, SHMSTORE_GC_ANCHOR);
	cr_assert_geq(plan.list[0].bytes, MB);
	cr_assert_geq(plan.list[0].tier_bytes, MB);
	tg_end(s);
}

Test(tier_gc_torn, files_without_an_anchor_go_and_what_is_not_ours_stays)
{
	struct gcplan plan;
	struct shmstore *s;
	int fd;

	TIERED_OR_SKIP();
	s = tg_store_with_all("a");
	tg_write_file(tg_files("00000000000000aa"), "an orphan");
	tg_write_file(tg_files("tmp-00000000000000bb"), "half of one, of a writer who lives");
	tg_write_file(tg_files("tmp-00000000000000cc"), "half of one, of a writer who does not");
	tg_write_file(tg_files("00000000000000AA"), "not a name that we make");
	tg_write_file(tg_anchors("00000000000000dd.object"), "a resident without an anchor");
	tg_write_file(tg_anchors("notes.txt"), "not ours");
	fd = open(tg_files("tmp-00000000000000bb"), O_RDONLY | O_CLOEXEC);
	cr_assert_eq(flock(fd, LOCK_EX), 0);
	tg_gc(&plan);
	cr_assert_eq(gcplan_count(&plan, SHMSTORE_GC_TIER), 2);
	cr_assert_eq(gcplan_count(&plan, SHMSTORE_GC_TORN), 1);
	cr_assert_eq(gcplan_count(&plan, SHMSTORE_GC_KEPT), 2);
	cr_assert_eq(plan.report.n_tier, 2);
	cr_assert_eq(gcplan_find(&plan, tg_files("00000000000000AA"))->what, SHMSTORE_GC_KEPT);
	cr_assert_eq(gcplan_find(&plan, tg_anchors("notes.txt"))->what, SHMSTORE_GC_KEPT);
	cr_assert_not(tg_exists(tg_files("00000000000000aa")));
	cr_assert_not(tg_exists(tg_files("tmp-00000000000000cc")));
	cr_assert(tg_exists(tg_files("tmp-00000000000000bb")));
	close(fd);
	cr_assert_eq(unlink(tg_files("00000000000000AA")), 0);
	cr_assert_eq(unlink(tg_anchors("notes.txt")), 0);
	cr_assert_eq(unlink(tg_files("tmp-00000000000000bb")), 0);
	tg_check_all(s);
	tg_end(s);
}

Test(tier_gc_torn, an_objects_second_file_in_clean_goes)
{
	struct gcplan plan;
	struct shmstore *s;
	char copy[SCRATCH_PATH];
	int fd;

	TIERED_OR_SKIP();
	s = tg_store_with_all("a");
	/* Demoting was killed after the exchange: the stub is in objects/,
	 * the object's file in clean/. */
	snprintf(copy, sizeof(copy), "%s", scratch_store_path("a", "clean/demoted"));
	fd = open(copy, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0400);
	cr_assert_eq(posix_fallocate(fd, 0, MB), 0);
	close(fd);
	/* Another one killed while its file had its name in objects/ still. */
	cr_assert_eq(link(scratch_store_path("a", "objects/memory"),
			  scratch_store_path("a", "clean/memory")),
		     0);
	tg_gc(&plan);
	cr_assert_eq(plan.n, 2);
	cr_assert_eq(gcplan_count(&plan, SHMSTORE_GC_TORN), 2);
	cr_assert_eq(plan.report.freed, MB);
	tg_check_all(s);
	tg_end(s);
}

Test(tier_gc_torn, a_clean_copy_of_nothing_goes_with_its_tier_file)
{
	struct gcplan plan;
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = tg_store_with_all("a");
	/* a delete that was killed */
	cr_assert_eq(unlink(scratch_store_path("a", "objects/clean")), 0);
	tg_gc_one(&plan, SHMSTORE_GC_TORN);
	cr_assert_eq(plan.report.n_tier, 1);
	cr_assert_eq(tiered_count_files(), 1);
	cr_assert_eq(get_pattern(s, "demoted", MB, 1), 0);
	tg_end(s);
}

Test(tier_gc_torn, a_clean_copy_of_an_earlier_object_goes)
{
	struct gcplan plan;
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = tg_store_with_all("a");
	/* A replacement that was killed before it came to the clean copy. */
	cr_assert_eq(rename(scratch_store_path("a", "objects/memory"),
			    scratch_store_path("a", "objects/clean")),
		     0);
	tg_gc_one(&plan, SHMSTORE_GC_TORN);
	cr_assert_not_null(strstr(plan.list[0].evidence, "earlier"));
	cr_assert_eq(tiered_count_files(), 1);
	tg_end(s);
}

Test(tier_gc_torn, a_stub_in_clean_of_a_demoted_object_goes_and_the_object_stays)
{
	struct gcplan plan;
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = tg_store_with_all("a");
	cr_assert_eq(link(scratch_store_path("a", "objects/demoted"),
			  scratch_store_path("a", "clean/demoted")),
		     0);
	tg_gc(&plan);
	cr_assert_eq(plan.n, 1);
	cr_assert_eq(plan.report.n_tier, 0);
	tg_check_all(s);
	tg_end(s);
}

Test(tier_gc_torn, a_clean_copy_without_its_tier_file_goes)
{
	struct gcplan plan;
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = tg_store_with_all("a");
	cr_assert_eq(unlink(tiered_file("a", "clean")), 0);
	tg_gc_one(&plan, SHMSTORE_GC_TORN);
	cr_assert_eq(tiered_count_anchors(), 1);
	cr_assert_eq(get_pattern(s, "clean", MB, 2), 0);
	tg_demote(s, "clean");
	cr_assert_eq(get_pattern(s, "clean", MB, 2), 0);
	tg_end(s);
}

Test(tier_gc_torn, kept_stores_are_cleaned_too)
{
	struct gcplan plan;

	TIERED_OR_SKIP();
	tg_die((struct tg_death){.name = "a", .keep = true});
	cr_assert_eq(unlink(scratch_store_path("a", "objects/clean")), 0);
	tg_gc(&plan);
	cr_assert_eq(plan.n, 2);
	cr_assert_eq(gcplan_count(&plan, SHMSTORE_GC_TORN), 1);
	cr_assert_eq(plan.report.n_tier, 1);
}

Test(tier_gc_torn, a_configuration_half_written_goes)
{
	char path[SCRATCH_PATH];
	struct gcplan plan;

	TIERED_OR_SKIP();
	snprintf(path, sizeof(path), "%s/tier/config.new", scratch_partition_path());
	tg_write_file(path, "shmstore ti");
	tg_gc_one(&plan, SHMSTORE_GC_TORN);
	cr_assert_not(tg_exists(path));
}

Test(tier_gc_torn, a_tier_half_taken_away_is_put_in_force_again)
{
	char path[SCRATCH_PATH], left[SCRATCH_PATH];
	struct gcplan plan;
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = tg_store_with_all("a");
	snprintf(path, sizeof(path), "%s/tier/config", scratch_partition_path());
	snprintf(left, sizeof(left), "%s/tier/config.new", scratch_partition_path());
	cr_assert_eq(rename(path, left), 0);
	tg_write_file(tg_files("00000000000000aa"), "an orphan");
	tg_gc(&plan);
	cr_assert_eq(plan.n, 2);
	cr_assert_eq(gcplan_find(&plan, left)->what, SHMSTORE_GC_TORN);
	cr_assert_eq(gcplan_count(&plan, SHMSTORE_GC_TIER), 1, "and cleaned at once");
	cr_assert(tg_exists(path));
	cr_assert_not(tg_exists(left));
	tg_check_all(s);
	tg_end(s);
}
