/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eviction: what is demoted, what is not, in which order, and what is said of it. Sizes are told by
 * statfs, places by the names in the directories.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "api.h"
#include "crowded.h"
#include "tiered.h"

#define N 40 /* objects of a usual scene */
/* ---- what and how much ----------------------------------------------------------------------- */

Test(evict, least_recently_used_go_first_and_the_report_is_true)
{
	struct shmstore_evict_report r;
	struct shmstore *s;
	uint64_t before;

	CROWDED_OR_SKIP(NULL);
	s = scratch_store("a");
	crowded_fill(s, 0, N, 0);
	/* The first five were used again: they are the youngest. */
	for (unsigned i = 0; i < 5; i++)
		cr_assert_eq(get_pattern(s, nth(i), CROWDED_SIZE, i), 0);
	before = crowded_used();
	cr_assert_eq(crowded_evict_bytes(10 * CROWDED_WHOLE, &r), 1, "%s", shmstore_error_detail());
	cr_assert_eq(r.n_objects, 10);
	cr_assert_eq(r.freed, before - crowded_used());
	cr_assert_eq(r.freed, 10 * CROWDED_WHOLE);
	cr_assert_eq(r.original, r.freed);
	cr_assert_geq(r.written, 10 * CROWDED_SIZE);
	cr_assert_eq(r.held, 0);
	cr_assert_eq(r.n_clean, 0);
	cr_assert_eq(r.error, 0);
	cr_assert_not(r.disk_full);
	cr_assert_eq(tiered_count_files(), 10);
	for (unsigned i = 0; i < N; i++)
		cr_assert_eq(crowded_in_memory(s, i), i < 5 || i >= 15, "k%u", i);
	crowded_finish(s, 0, N);
}

Test(evict, threads_do_the_same)
{
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	struct shmstore_evict_report r;
	struct shmstore *s;

	CROWDED_OR_SKIP(NULL);
	s = scratch_store("a");
	crowded_fill(s, 0, N, 0);
	what.bytes = 30 * CROWDED_WHOLE;
	what.n_threads = 2;
	what.background = true;
	cr_assert_eq(crowded_evict(what, &r), 1, "%s", shmstore_error_detail());
	cr_assert_eq(r.n_objects, 30);
	cr_assert_eq(crowded_count(s, 0, 30), 0);
	crowded_finish(s, 0, N);
}

Test(evict, down_to_bytes_used)
{
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	struct shmstore_evict_report r;
	struct shmstore *s;

	CROWDED_OR_SKIP(NULL);
	s = scratch_store("a");
	crowded_fill(s, 0, N, 0);
	what.to = crowded_used();
	cr_assert_eq(crowded_evict(what, &r), 0, "it is there already");
	cr_assert_eq(r.n_objects, 0);
	what.to = 20 * MIB;
	cr_assert_eq(crowded_evict(what, &r), 1);
	cr_assert_leq(crowded_used(), 20 * MIB);
	cr_assert_gt(crowded_used(), 20 * MIB - CROWDED_WHOLE, "and no further");
	crowded_finish(s, 0, N);
}

Test(evict, watermarks)
{
	struct shmstore_tier_config config = SHMSTORE_TIER_CONFIG_INIT;
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	struct shmstore_evict_report r;
	struct shmstore *s;

	config.high = 50;
	config.low = 25;
	CROWDED_OR_SKIP(&config);
	what.watermarks = true;
	s = scratch_store("a");
	crowded_fill(s, 0, 31, 0);
	cr_assert_leq(crowded_used(), CROWDED_OF * MIB / 2);
	cr_assert_eq(crowded_evict(what, &r), 0, "below the high one there is nothing to do");
	crowded_fill(s, 31, 2, 0);
	cr_assert_gt(crowded_used(), CROWDED_OF * MIB / 2);
	cr_assert_eq(crowded_evict(what, &r), 1);
	cr_assert_leq(crowded_used(), CROWDED_OF * MIB / 4 + 100);
	cr_assert_gt(crowded_used(), CROWDED_OF * MIB / 4 - CROWDED_WHOLE);
	cr_assert_eq(crowded_evict(what, &r), 0, "between the two neither");
	crowded_finish(s, 0, 33);
}

Test(evict, nothing_asked_is_nothing_done)
{
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	struct shmstore_evict_report r;

	CROWDED_OR_SKIP(NULL);
	cr_assert_eq(crowded_evict(what, &r), 0);
	what.size = 8;
	cr_assert_eq(crowded_evict(what, &r), -EINVAL);
	cr_assert_eq(shmstore_partition_evict(NULL, &what, &r), -EINVAL);
}

Test(evict, without_a_tier_is_said)
{
	struct shmstore *s = scratch_store("a");

	cr_assert_eq(put_pattern(s, "k0", CROWDED_SIZE, 0, 0), 0);
	cr_assert_eq(crowded_evict_bytes(1, NULL), -ENOENT);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(evict, clean_ones_go_without_a_write)
{
	struct shmstore_evict_report r;
	struct shmstore *s;

	CROWDED_OR_SKIP(NULL);
	s = scratch_store("a");
	crowded_fill(s, 0, N, 0);
	cr_assert_eq(crowded_evict_bytes(10 * CROWDED_WHOLE, &r), 1);
	for (unsigned i = 0; i < 10; i++)
		cr_assert_eq(get_pattern(s, nth(i), CROWDED_SIZE, i), 0);
	/* They are the youngest now; where all are of about one age what
	 * costs nothing goes first. */
	crowded_tick();
	cr_assert_eq(crowded_evict_bytes(10 * CROWDED_WHOLE, &r), 1);
	cr_assert_eq(r.n_objects, 10);
	cr_assert_eq(r.n_clean + r.original / CROWDED_WHOLE, 10, "each was clean or was written");
	cr_assert_eq((uint64_t)tiered_count_files(), 10 + r.original / CROWDED_WHOLE);
	/* With all of them demoted once nothing is ever written again. */
	cr_assert_eq(crowded_evict_bytes(30 * CROWDED_WHOLE, &r), 1);
	for (unsigned i = 0; i < N; i++)
		cr_assert_eq(shmstore_promote(s, KEY(nth(i)), 0), 0, "%s", shmstore_error_detail());
	cr_assert_eq(crowded_evict_bytes(N * CROWDED_WHOLE, &r), 1, "%s", shmstore_error_detail());
	cr_assert_eq(r.n_clean, N);
	cr_assert_eq(r.written, 0);
	cr_assert_eq(r.original, 0);
	cr_assert_eq(tiered_count_files(), N);
	crowded_finish(s, 0, N);
}

/* ---- what does not go ------------------------------------------------------------------------ */

Test(evict, pinned_and_leased_stay)
{
	struct shmstore_evict_report r;
	struct shmstore_ticket t;
	struct shmstore *s;

	CROWDED_OR_SKIP(NULL);
	s = scratch_store("a");
	crowded_fill(s, 0, 2, SHMSTORE_PIN);
	crowded_fill(s, 2, 2, 0);
	cr_assert_eq(shmstore_handoff(s, KEY("k2"), 60000, &t), 0);
	cr_assert_eq(crowded_evict_bytes(CROWDED_OF * MIB, &r), -ENOSPC);
	cr_assert_eq(r.n_objects, 1);
	cr_assert_not(r.disk_full);
	cr_assert_neq(*shmstore_error_detail(), '\0', "and why");
	for (unsigned i = 0; i < 4; i++)
		cr_assert_eq(crowded_in_memory(s, i), i < 3, "k%u", i);
	cr_assert_eq(shmstore_pin(s, KEY("k0"), false), 0);
	cr_assert_eq(crowded_evict_bytes(1, &r), 1);
	cr_assert_not(crowded_in_memory(s, 0));
	for (unsigned i = 0; i < 4; i++)
		cr_assert_eq(get_pattern(s, nth(i), CROWDED_SIZE, i), 0);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(evict, mapped_ones_go_last_and_are_free_with_their_last_view)
{
	struct shmstore_evict_report r;
	struct shmstore_view *views[2];
	struct shmstore *s;
	uint64_t before;

	CROWDED_OR_SKIP(NULL);
	s = scratch_store("a");
	crowded_fill(s, 0, 10, 0);
	for (unsigned i = 0; i < 2; i++) {
		views[i] = get_view(s, nth(i), 0);
		crowded_tick();
	}
	for (unsigned i = 2; i < 10; i++)
		cr_assert_eq(get_pattern(s, nth(i), CROWDED_SIZE, i), 0);
	/* Those two are the oldest, but somebody looks at them. */
	cr_assert_eq(crowded_evict_bytes(8 * CROWDED_WHOLE, &r), 1);
	cr_assert_eq(crowded_count(s, 0, 2), 2);
	cr_assert_eq(r.n_objects, 8);
	before = crowded_used();
	cr_assert_eq(crowded_evict_bytes(CROWDED_WHOLE, &r), -ENOSPC, "nothing is free yet");
	cr_assert_eq(r.held, CROWDED_WHOLE);
	cr_assert_eq(r.freed, 0);
	cr_assert_eq(crowded_count(s, 0, 2), 1);
	cr_assert_not(crowded_in_memory(s, 0), "the older one");
	cr_assert_geq(crowded_used() + 8192, before);
	cr_assert_eq(crowded_evict_bytes(CROWDED_WHOLE, &r), -ENOSPC);
	cr_assert_eq(r.n_objects, 0,
		     "what waits for its last view counts: the other one does not go for it");
	cr_assert_eq(view_pattern(views[0], CROWDED_SIZE, 0), 0);
	shmstore_view_unref(views[0]);
	cr_assert_eq(crowded_evict_bytes(CROWDED_WHOLE, &r), 1, "the resident goes");
	cr_assert_eq(r.freed, CROWDED_WHOLE);
	cr_assert_eq(tiered_count_residents(), 0);
	cr_assert_leq(crowded_used() + CROWDED_WHOLE, before);
	cr_assert_eq(crowded_count(s, 0, 2), 1);
	shmstore_view_unref(views[1]);
	crowded_finish(s, 0, 10);
}

Test(evict, stores_that_take_no_part_are_left_alone)
{
	struct shmstore_evict_report r;
	struct shmstore *s;

	scratch_dir("size=64m");
	s = scratch_store("a");
	crowded_fill(s, 0, 4, 0);
	if (!crowded_begin(NULL))
		cr_skip_test("needs a tmpfs of its own (root) and a directory on disk\n");
	cr_assert_eq(crowded_evict_bytes(1, &r), -ENOSPC,
		     "its owner does not know of the tier yet");
	cr_assert_eq(r.n_objects, 0);
	cr_assert_eq(crowded_count(s, 0, 4), 4);
	cr_assert_eq(shmstore_close(s), 0);
	s = scratch_store("a");
	crowded_fill(s, 0, 4, 0);
	cr_assert_eq(crowded_evict_bytes(1, &r), 1);
	crowded_finish(s, 0, 4);
}

Test(evict, of_several_names_all_or_none)
{
	struct shmstore_evict_report r;
	struct shmstore_ticket t;
	struct shmstore *s;
	struct other o;
	uint64_t before;

	CROWDED_OR_SKIP(NULL);
	s = scratch_store("a");
	o = other_start("b");
	crowded_fill(s, 0, 4, 0);
	for (unsigned i = 0; i < 3; i++) {
		cr_assert_eq(shmstore_handoff(s, KEY(nth(i)), 60000, &t), 0);
		cr_assert_eq(other_adopt(&o, nth(i), &t), 0);
	}
	/* k2 has a name that is nobody's, k3 only ours. */
	cr_assert_eq(
		link(scratch_store_path("a", "objects/k2"), scratch_store_path("a", "elsewhere")),
		0);
	before = crowded_used();
	cr_assert_eq(crowded_evict_bytes(CROWDED_OF * MIB, &r), -ENOSPC);
	cr_assert_eq(r.n_objects, 3, "two names are one object");
	cr_assert_eq(r.freed, 3 * CROWDED_WHOLE);
	cr_assert_eq(before - crowded_used(), 3 * CROWDED_WHOLE);
	for (unsigned i = 0; i < 3; i++) {
		cr_assert_eq(crowded_in_memory(s, i), i == 2);
		cr_assert_eq(other_locate(&o, nth(i)),
			     i == 2 ? SHMSTORE_IN_MEMORY : SHMSTORE_IN_TIER);
	}
	cr_assert_eq(tiered_count_files(), 3);
	cr_assert_eq(unlink(scratch_store_path("a", "elsewhere")), 0);
	/* Promoted by one: for the other it is in the tier still, and this
	 * one demotes without a write. */
	cr_assert_eq(get_pattern(s, "k0", CROWDED_SIZE, 0), 0);
	cr_assert_eq(crowded_evict_bytes(2 * CROWDED_WHOLE, &r), 1, "k0 and k2");
	cr_assert_eq(r.n_clean, 1);
	cr_assert_eq(r.freed, 2 * CROWDED_WHOLE);
	cr_assert_eq(tiered_count_residents(), 0);
	for (unsigned i = 0; i < 3; i++)
		cr_assert_eq(other_get(&o, nth(i), CROWDED_SIZE, i), 0);
	cr_assert_eq(other_close(&o), 0);
	crowded_finish(s, 0, 4);
}

/* ---- a full disk ----------------------------------------------------------------------------- */

Test(evict, full_disk_stops_it_and_memory_keeps_what_it_has)
{
	struct shmstore_tier_config config = crowded_limit(5 * MIB + 5 * 16384);
	struct shmstore_evict_report r;
	struct shmstore *s;

	CROWDED_OR_SKIP(&config);
	s = scratch_store("a");
	crowded_fill(s, 0, N, 0);
	cr_assert_eq(crowded_evict_bytes(20 * CROWDED_WHOLE, &r), -ENOSPC);
	cr_assert(r.disk_full);
	cr_assert_not_null(strstr(shmstore_error_detail(), "disk full"), "%s",
			   shmstore_error_detail());
	cr_assert_not_null(strstr(shmstore_error_detail(), tiered_disk()), "%s",
			   shmstore_error_detail());
	cr_assert_geq(r.n_objects, 4);
	cr_assert_leq(r.n_objects, 5);
	cr_assert_eq(crowded_count(s, 0, N), N - r.n_objects);
	/* One of those is deleted: there is room for another one. */
	cr_assert_eq(shmstore_delete(s, KEY("k0")), 0);
	cr_assert_eq(crowded_evict_bytes(CROWDED_WHOLE, &r), 1, "%s", shmstore_error_detail());
	crowded_finish(s, 1, N - 1);
}

Test(evict, full_disk_gives_up_clean_copies_before_it_gives_up)
{
	struct shmstore_tier_config config = crowded_limit(5 * MIB + 5 * 16384);
	struct shmstore_evict_report r;
	struct shmstore_view *views[4];
	struct shmstore *s;
	uint64_t wrote;

	CROWDED_OR_SKIP(&config);
	s = scratch_store("a");
	crowded_fill(s, 0, N, 0);
	cr_assert_eq(crowded_evict_bytes(4 * CROWDED_WHOLE, &r), 1);
	/* The four are back, mapped or pinned: their copies are of no use to anybody now. */
	for (unsigned i = 0; i < 4; i++) {
		views[i] = get_view(s, nth(i), 0);
		crowded_tick();
	}
	cr_assert_eq(shmstore_pin(s, KEY("k3"), true), 0);
	cr_assert_eq(tiered_count_files(), 4);
	cr_assert_eq(crowded_evict_bytes(4 * CROWDED_WHOLE, &r), 1, "%s", shmstore_error_detail());
	wrote = r.n_objects;
	cr_assert_eq(wrote, 4);
	cr_assert_eq(r.n_clean, 0);
	cr_assert_not(r.disk_full);
	for (unsigned i = 0; i < 4; i++)
		cr_assert(crowded_in_memory(s, i));
	cr_assert_leq(tiered_count_files(), 5, "the limit holds");
	for (unsigned i = 0; i < 4; i++) {
		cr_assert_eq(view_pattern(views[i], CROWDED_SIZE, i), 0);
		shmstore_view_unref(views[i]);
	}
	crowded_finish(s, 0, N);
}

/* ---- who else -------------------------------------------------------------------------------- */

struct told {
	unsigned n, end;
	uint64_t last;
};

static int progress(const struct shmstore_evict_report *report, void *arg)
{
	struct told *t = arg;

	t->n++;
	t->last = report->n_objects;
	return t->n == t->end;
}

Test(evict, progress_may_end_it)
{
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	struct told told = {.end = 1};
	struct shmstore_evict_report r;
	struct shmstore *s;

	CROWDED_OR_SKIP(NULL);
	s = scratch_store("a");
	crowded_fill(s, 0, N, 0);
	what.bytes = 20 * CROWDED_WHOLE;
	what.progress = progress;
	what.arg = &told;
	cr_assert_eq(crowded_evict(what, &r), -ECANCELED);
	cr_assert_eq(told.n, 1);
	cr_assert_lt(r.n_objects, 20);
	told = (struct told){0};
	cr_assert_eq(crowded_evict(what, &r), 1);
	cr_assert_gt(told.n, 0);
	crowded_finish(s, 0, N);
}

static int lock_fd = -1;

static void lock_tier(void)
{
	char path[SCRATCH_PATH + 64];

	snprintf(path, sizeof(path), "%s/tier/%u/lock", scratch_partition_path(),
		 (unsigned)geteuid());
	lock_fd = open(path, O_RDWR | O_CLOEXEC);
	cr_assert_geq(lock_fd, 0);
	cr_assert_eq(flock(lock_fd, LOCK_EX | LOCK_NB), 0);
}

/* Called while it waits: the other one ends. */
static int unlock_tier(const struct shmstore_evict_report *report, void *arg)
{
	(void)arg;
	if (lock_fd >= 0)
		cr_assert_eq(report->n_objects, 0, "nothing is done while another one is at it");
	if (lock_fd >= 0)
		close(lock_fd);
	lock_fd = -1;
	return 0;
}

Test(evict, one_at_a_time)
{
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	struct shmstore_evict_report r;
	struct told told = {.end = 3};
	struct shmstore *s;

	CROWDED_OR_SKIP(NULL);
	s = scratch_store("a");
	crowded_fill(s, 0, N, 0);
	what.bytes = 2 * CROWDED_WHOLE;
	cr_assert_eq(crowded_evict(what, &r), 1);
	lock_tier();
	cr_assert_eq(crowded_evict(what, &r), 0, "the other one is at it");
	cr_assert_eq(r.n_objects, 0);
	what.wait = true;
	what.progress = progress;
	what.arg = &told;
	cr_assert_eq(crowded_evict(what, &r), -ECANCELED, "waiting can be ended");
	what.progress = unlock_tier;
	cr_assert_eq(crowded_evict(what, &r), 1);
	cr_assert_eq(r.n_objects, 2);
	crowded_finish(s, 0, N);
}
