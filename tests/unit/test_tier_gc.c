/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gc with a disk tier: objects of dead stores go, those of living ones stay, and so do files that
 * gc does not know. In each case a dry run tells what a run does, to the byte of memory and of
 * disk. test_tier_gc_torn.c: what killed processes left half-done.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "tiered.h"
#include "tiergc.h"

TestSuite(tier_gc, .timeout = 120);

/* ---- what lives ------------------------------------------------------------------------------ */

Test(tier_gc, what_a_live_store_has_in_the_tier_is_left_alone)
{
	struct gcplan plan;
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = tg_store_with_all("a");
	tg_gc(&plan);
	cr_assert_eq(plan.n, 0);
	tg_check_all(s);
	tg_end(s);
}

Test(tier_gc, what_a_kept_store_has_in_the_tier_is_left_alone)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p;
	struct gcplan plan;
	struct shmstore *s;

	TIERED_OR_SKIP();
	tg_die((struct tg_death){.name = "a", .keep = true});
	tg_gc_one(&plan, SHMSTORE_GC_KEPT);
	p = scratch_partition();
	cr_assert_eq(shmstore_open(p, "a", &o, &s), 0);
	shmstore_partition_unref(p);
	tg_check_all(s);
	tg_end(s);
}

/* ---- dead stores ----------------------------------------------------------------------------- */

Test(tier_gc, a_dead_store_goes_with_its_tier_files)
{
	struct gcplan plan;

	TIERED_OR_SKIP();
	tg_die((struct tg_death){.name = "a"});
	cr_assert_eq(tiered_count_files(), 2);
	tg_gc_one(&plan, SHMSTORE_GC_STORE);
	cr_assert_eq(plan.list[0].n_objects, 3, "a clean copy is no object of its own");
	cr_assert_geq(plan.list[0].tier_bytes, 2 * MB);
	cr_assert_eq(plan.report.n_tier, 2);
	cr_assert_eq(plan.report.tier_freed, plan.list[0].tier_bytes);
	ensure_nothing_left();
	ensure_tier_empty();
}

Test(tier_gc, the_last_of_several_dead_stores_frees_what_they_share)
{
	struct shmstore_ticket t[2];
	struct shmstore *live;
	struct gcplan plan;

	TIERED_OR_SKIP();
	live = scratch_store("live");
	cr_assert_eq(put_pattern(live, "k", 2 * MB, 9, 0), 0);
	tg_demote(live, "k");
	for (int i = 0; i < 2; i++)
		cr_assert_eq(shmstore_handoff_flags(live, KEY("k"), 60000, SHMSTORE_AS_IS, &t[i]),
			     0);
	/* Kept until now, so that one's opening does not sweep the other. */
	tg_die((struct tg_death){.name = "b", .keep = true, .adopt = &t[0]});
	tg_die((struct tg_death){.name = "c", .keep = true, .adopt = &t[1]});
	cr_assert_eq(shmstore_delete(live, KEY("k")), 0);
	cr_assert_eq(tiered_count_files(), 5);
	tg_unkeep("b");
	tg_unkeep("c");
	tg_gc(&plan);
	cr_assert_eq(gcplan_count(&plan, SHMSTORE_GC_STORE), 2);
	cr_assert_eq(plan.n, 2, "nothing was left for later");
	cr_assert_eq(plan.report.n_tier, 5);
	cr_assert_geq(plan.report.tier_freed, 6 * MB);
	tg_end(live);
}

Test(tier_gc, a_stub_that_a_live_store_holds_too_keeps_its_tier_file)
{
	struct shmstore_ticket t;
	struct shmstore *live;
	struct gcplan plan;

	TIERED_OR_SKIP();
	live = scratch_store("live");
	cr_assert_eq(put_pattern(live, "k", MB, 9, 0), 0);
	tg_demote(live, "k");
	cr_assert_eq(shmstore_handoff_flags(live, KEY("k"), 60000, SHMSTORE_AS_IS, &t), 0);
	tg_die((struct tg_death){.name = "b", .adopt = &t});
	tg_gc(&plan);
	cr_assert_eq(plan.report.n_stores, 1);
	cr_assert_eq(plan.report.n_tier, 2);
	cr_assert_eq(tiered_count_files(), 1);
	cr_assert_eq(get_pattern(live, "k", MB, 9), 0);
	tg_end(live);
}

Test(tier_gc, a_resident_goes_with_the_last_stub_and_its_memory_is_told)
{
	struct shmstore_ticket t;
	struct shmstore *live;
	struct gcplan plan;

	TIERED_OR_SKIP();
	live = scratch_store("live");
	cr_assert_eq(put_pattern(live, "k", 2 * MB, 9, 0), 0);
	tg_demote(live, "k");
	cr_assert_eq(shmstore_handoff_flags(live, KEY("k"), 60000, SHMSTORE_AS_IS, &t), 0);
	tg_die((struct tg_death){.name = "b", .adopt = &t});
	tg_promote(live, "k");
	cr_assert_eq(tiered_count_residents(), 1);
	cr_assert_eq(shmstore_close(live), 0);
	tg_gc(&plan);
	cr_assert_eq(plan.report.n_stores, 1);
	cr_assert_eq(plan.report.n_tier, 3);
	cr_assert_geq(plan.report.freed, 4 * MB, "the two in memory, and the resident");
	ensure_nothing_left();
	ensure_tier_empty();
}

Test(tier_gc, an_ended_lease_that_was_the_last_name_takes_the_tier_file_along)
{
	struct shmstore_ticket t;
	struct gcplan plan;
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = scratch_store("a");
	cr_assert_eq(put_pattern(s, "k", MB, 9, 0), 0);
	tg_demote(s, "k");
	cr_assert_eq(shmstore_handoff_flags(s, KEY("k"), 3600000, SHMSTORE_AS_IS, &t), 0);
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	tg_gc(&plan);
	cr_assert_eq(plan.n, 0, "it has not ended");
	cr_assert_eq(rename(t.path, scratch_store_path("a", "handoff/1-0123456789abcdef")), 0);
	tg_gc_one(&plan, SHMSTORE_GC_LEASE);
	cr_assert_eq(plan.report.n_tier, 1);
	tg_end(s);
}

Test(tier_gc, opening_a_store_sweeps_tier_files_of_dead_ones_too)
{
	struct shmstore *s;

	TIERED_OR_SKIP();
	tg_die((struct tg_death){.name = "a"});
	s = scratch_store("b");
	ensure_tier_empty();
	tg_end(s);
}

Test(tier_gc, a_reaped_store_takes_its_tier_files_along)
{
	struct shmstore_gc_report dry, did;
	struct shmstore_partition *p;
	char path[SCRATCH_PATH];

	TIERED_OR_SKIP();
	tg_die((struct tg_death){.name = "a"});
	p = scratch_partition();
	snprintf(path, sizeof(path), "%s", scratch_store_path("a", ""));
	cr_assert_eq(shmstore_partition_reap(p, path, SHMSTORE_GC_DRY_RUN, NULL, NULL, &dry, NULL),
		     0);
	cr_assert_eq(tiered_count_files(), 2);
	cr_assert_eq(shmstore_partition_reap(p, path, 0, NULL, NULL, &did, NULL), 0);
	cr_assert_eq(memcmp(&dry, &did, sizeof(did)), 0);
	cr_assert_eq(did.n_tier, 2);
	ensure_tier_empty();
	shmstore_partition_unref(p);
}

/* ---- what gc does not know ------------------------------------------------------------------- */

Test(tier_gc, tier_files_whose_anchors_are_not_where_they_should_be_are_kept)
{
	struct gcplan plan;
	struct shmstore *s;
	char away[SCRATCH_PATH];

	TIERED_OR_SKIP();
	s = tg_store_with_all("a");
	snprintf(away, sizeof(away), "%s/away", scratch_partition_path());
	cr_assert_eq(rename(tg_anchors(""), away), 0);
	tg_gc(&plan);
	cr_assert_eq(plan.n, 1);
	cr_assert_eq(gcplan_find(&plan, tg_files(""))->what, SHMSTORE_GC_KEPT);
	cr_assert_eq(tiered_count_files(), 2);
	cr_assert_eq(rename(away, tg_anchors("")), 0);
	tg_check_all(s);
	tg_end(s);
}

Test(tier_gc, while_the_disk_is_away_anchors_go_and_the_files_later)
{
	char away[2 * TIERED_PATH];
	struct gcplan plan;
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = tg_store_with_all("a");
	snprintf(away, sizeof(away), "%s-away", tiered_disk());
	cr_assert_eq(rename(tiered_disk(), away), 0);
	cr_assert_eq(unlink(scratch_store_path("a", "objects/demoted")), 0);
	gcplan_gc(&plan);
	cr_assert_eq(plan.n, 1);
	cr_assert_eq(plan.list[0].what, SHMSTORE_GC_ANCHOR);
	cr_assert_eq(tiered_count_anchors(), 1, "the clean one's");
	cr_assert_eq(rename(away, tiered_disk()), 0);
	tg_gc_one(&plan, SHMSTORE_GC_TIER);
	cr_assert_eq(tiered_count_files(), 1);
	cr_assert_eq(get_pattern(s, "clean", MB, 2), 0);
	tg_end(s);
}

static int gc_as_nobody(void *arg)
{
	struct gcplan *plan = calloc(1, sizeof(*plan));
	bool said = false;

	(void)arg;
	if (!plan || setgid(65534) < 0 || setuid(65534) < 0)
		return 1;
	gcplan_run(plan, 0);
	for (size_t i = 0; i < plan->n; i++) {
		if (plan->list[i].what != SHMSTORE_GC_KEPT)
			return 2;
		said = said || strstr(plan->list[i].path, "tier");
	}
	free(plan);
	return said ? 0 : 3;
}

Test(tier_gc, another_users_tier_is_kept_and_said)
{
	char path[SCRATCH_PATH];
	struct shmstore *s;

	if (geteuid() != 0)
		cr_skip_test("needs another user (root)");
	TIERED_OR_SKIP();
	s = tg_store_with_all("a");
	tg_write_file(tg_files("00000000000000aa"), "an orphan");
	cr_assert_eq(chmod(scratch_partition_path(), 0755), 0);
	snprintf(path, sizeof(path), "%s/tier", scratch_partition_path());
	cr_assert_eq(chmod(path, 0755), 0);
	cr_assert_eq(chmod(tiered_disk(), 0755), 0);
	cr_assert_eq(in_child(gc_as_nobody, NULL), 0);
	cr_assert_eq(tiered_count_files(), 3);
	cr_assert_eq(unlink(tg_files("00000000000000aa")), 0);
	tg_check_all(s);
	tg_end(s);
}

/* Another user's directory of that name, in a partition where everybody may make one: its anchors
 * say nothing of the files. */
Test(tier_gc, a_planted_directory_of_anchors_proves_nothing)
{
	struct gcplan plan;
	struct shmstore *s;
	char away[SCRATCH_PATH];

	if (geteuid() != 0)
		cr_skip_test("needs another user (root)");
	TIERED_OR_SKIP();
	s = tg_store_with_all("a");
	snprintf(away, sizeof(away), "%s/away", scratch_partition_path());
	cr_assert_eq(rename(tg_anchors(""), away), 0);
	cr_assert_eq(mkdir(tg_anchors(""), 0755), 0);
	cr_assert_eq(chown(tg_anchors(""), 65534, 65534), 0);
	tg_gc(&plan);
	cr_assert_eq(gcplan_count(&plan, SHMSTORE_GC_KEPT), plan.n);
	cr_assert_eq(tiered_count_files(), 2);
	cr_assert_eq(rmdir(tg_anchors("")), 0);
	cr_assert_eq(rename(away, tg_anchors("")), 0);
	tg_check_all(s);
	tg_end(s);
}
