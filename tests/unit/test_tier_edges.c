/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The disk tier where something is not as it should be: no tier, none yet, a full one; leases,
 * locked names, dead owners, children; wrong arguments. Each is an error that says what to do, or
 * none at all, and costs no object.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "tiered.h"

#define SIZE ((uint64_t)300000)

static void finish(struct shmstore *s)
{
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

static void ensure_detail(const char *part)
{
	cr_assert(strstr(shmstore_error_detail(), part), "\"%s\" without \"%s\"",
		  shmstore_error_detail(), part);
}

/* ---- without a tier -------------------------------------------------------------------------- */

Test(tier_edges, without_a_tier_all_is_in_memory)
{
	struct shmstore *s = scratch_store("s");
	struct shmstore_partition *p = scratch_partition();
	struct iovec key = {(char[]){"k"}, 1};
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	struct shmstore_tier_info info = {.size = sizeof(info)};
	struct shmstore_ticket t;

	what.bytes = 1;
	cr_assert_eq(put_pattern(s, "k", SIZE, 1, SHMSTORE_PIN), 0);
	cr_assert_eq(shmstore_locate(s, KEY("k")), SHMSTORE_IN_MEMORY);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), -ENOENT);
	ensure_detail("no disk tier");
	cr_assert_eq(shmstore_promote(s, KEY("k"), 0), 0);
	cr_assert_eq(shmstore_prefetch(s, &key, 1, 2, 0, NULL), 1);
	cr_assert_eq(shmstore_pin(s, KEY("k"), false), 0);
	cr_assert_eq(shmstore_handoff_flags(s, KEY("k"), 1000, SHMSTORE_AS_IS, &t), 0);
	cr_assert_eq(shmstore_adopt(s, KEY("l"), &t, 0), 0);
	cr_assert_eq(shmstore_partition_evict(p, &what, NULL), -ENOENT);
	cr_assert_eq(shmstore_tier_info(p, &info), -ENOENT);
	cr_assert_eq(count_in_store("s", SHMS_DIR_CLEAN), -ENOENT, "nothing is made for it");
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
	ensure_nothing_left();
}

struct putting {
	struct shmstore *s;
	bool take_part;
};

static bool puts_until_it_takes_part(void *arg)
{
	struct putting *p = arg;

	cr_assert_eq(put_pattern(p->s, "on", 100, 1, SHMSTORE_REPLACE), 0);
	return count_in_store("s", SHMS_DIR_CLEAN) == 0;
}

Test(tier_edges, tier_that_comes_later_is_noticed_by_who_puts)
{
	struct shmstore *s = scratch_store("s");
	struct putting putting = {.s = s};
	struct other o = other_start("o");
	struct shmstore_ticket t;

	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("k"), 60000, &t), 0);
	cr_assert_eq(other_adopt(&o, "k", &t), 0);
	TIERED_OR_SKIP();
	cr_assert_eq(other_demote(&o, "k"), -EPERM, "our names are ours until we know");
	cr_assert_eq(get_pattern(s, "k", SIZE, 1), 0);
	cr_assert(wait_until(puts_until_it_takes_part, &putting, 10000));
	cr_assert_eq(other_demote(&o, "k"), 0);
	cr_assert_eq(shmstore_locate(s, KEY("k")), SHMSTORE_IN_TIER);
	cr_assert_eq(get_pattern(s, "k", SIZE, 1), 0);
	cr_assert_eq(other_get(&o, "k", SIZE, 1), 0);
	cr_assert_eq(other_close(&o), 0);
	finish(s);
}

/* ---- who may not, or not now ----------------------------------------------------------------- */

Test(tier_edges, wrong_arguments_are_refused)
{
	struct shmstore *s;
	struct shmstore_ticket t;
	static char key[SHMSTORE_KEY_MAX + 1];
	struct iovec keys[2] = {{key, sizeof(key)}, {(char[]){"k"}, 1}};
	int results[2];

	TIERED_OR_SKIP();
	s = scratch_store("s");
	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 1), -EINVAL);
	cr_assert_eq(shmstore_demote(s, key, sizeof(key), 0), -EINVAL);
	cr_assert_eq(shmstore_demote(s, NULL, 3, 0), -EINVAL);
	cr_assert_eq(shmstore_promote(s, KEY("k"), SHMSTORE_REPLACE), -EINVAL);
	cr_assert_eq(shmstore_promote(s, key, sizeof(key), 0), -EINVAL);
	cr_assert_eq(shmstore_locate(s, key, sizeof(key)), -EINVAL);
	cr_assert_eq(shmstore_pin(s, key, sizeof(key), true), -EINVAL);
	cr_assert_eq(shmstore_handoff_flags(s, KEY("k"), 1000, SHMSTORE_PIN, &t), -EINVAL);
	cr_assert_eq(shmstore_handoff_flags(s, KEY("k"), 0, SHMSTORE_AS_IS, &t), -EINVAL);
	cr_assert_eq(shmstore_prefetch(s, NULL, 1, 0, 0, NULL), -EINVAL);
	cr_assert_eq(shmstore_prefetch(s, keys, 2, 0, SHMSTORE_REPLACE, NULL), -EINVAL);
	cr_assert_eq(shmstore_prefetch(s, keys, 2, 0, 0, results), 1);
	cr_assert(results[0] == -EINVAL && results[1] == 0);
	cr_assert_eq(shmstore_prefetch(s, NULL, 0, 5, 0, NULL), 0);
	finish(s);
}

static int child(void *arg)
{
	struct shmstore *s = arg;
	struct iovec key = {(char[]){"k"}, 1};

	return shmstore_demote(s, KEY("k"), 0) != -EPERM ||
	       shmstore_promote(s, KEY("k"), 0) != -EPERM ||
	       shmstore_prefetch(s, &key, 1, 1, 0, NULL) != -EPERM ||
	       shmstore_pin(s, KEY("k"), true) != -EPERM || shmstore_locate(s, KEY("k")) != -EPERM;
}

Test(tier_edges, child_may_not_use_its_parents_store)
{
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = scratch_store("s");
	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(in_child(child, s), 0);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0);
	cr_assert_eq(in_child(child, s), 0);
	cr_assert_eq(get_pattern(s, "k", SIZE, 1), 0);
	finish(s);
}

static int child_with_its_own(void *arg)
{
	struct shmstore *s = scratch_store("child");

	(void)arg;
	return put_pattern(s, "k", SIZE, 2, 0) != 0 || shmstore_demote(s, KEY("k"), 0) != 0 ||
	       get_pattern(s, "k", SIZE, 2) != 0 || shmstore_close(s) != 0;
}

Test(tier_edges, child_uses_the_tier_with_a_store_of_its_own)
{
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = scratch_store("s");
	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0);
	/* The partition's tier, with engines at rest, is inherited. */
	cr_assert_eq(in_child(child_with_its_own, NULL), 0);
	cr_assert_eq(get_pattern(s, "k", SIZE, 1), 0);
	finish(s);
}

Test(tier_edges, lease_keeps_its_object_in_memory)
{
	struct shmstore *s;
	struct shmstore_ticket t;

	TIERED_OR_SKIP();
	s = scratch_store("s");
	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("k"), 60000, &t), 0);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), -EPERM);
	ensure_detail("lease");
	cr_assert_eq(shmstore_locate(s, KEY("k")), SHMSTORE_IN_MEMORY);
	cr_assert_eq(tiered_count_files(), 0);
	cr_assert_eq(shmstore_adopt(s, KEY("l"), &t, 0), 0);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0);
	cr_assert_eq(shmstore_locate(s, KEY("l")), SHMSTORE_IN_TIER);
	finish(s);
}

/* Another process holds the store's names and does not go on. The lock is the
 * description's: one of our own will do. */
Test(tier_edges, names_that_are_held_are_waited_for_and_given_up)
{
	struct shmstore *s;
	int fd;

	TIERED_OR_SKIP();
	s = scratch_store("s");
	cr_assert_eq(put_pattern(s, "in", SIZE, 1, 0), 0);
	cr_assert_eq(put_pattern(s, "out", SIZE, 2, 0), 0);
	cr_assert_eq(shmstore_demote(s, KEY("out"), 0), 0);
	fd = open(scratch_store_path("s", "objects"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert(fd >= 0 && flock(fd, LOCK_EX) == 0);
	cr_assert_eq(shmstore_demote(s, KEY("in"), 0), -ETIMEDOUT);
	cr_assert_eq(shmstore_promote(s, KEY("out"), 0), -ETIMEDOUT);
	cr_assert_eq(get_pattern(s, "in", SIZE, 1), 0, "what is in memory needs no lock");
	cr_assert_eq(shmstore_locate(s, KEY("out")), SHMSTORE_IN_TIER);
	close(fd);
	cr_assert_eq(shmstore_demote(s, KEY("in"), 0), 0);
	cr_assert_eq(get_pattern(s, "out", SIZE, 2), 0);
	cr_assert_eq(get_pattern(s, "in", SIZE, 1), 0);
	cr_assert_eq(tiered_count_files(), 2);
	finish(s);
}

static int lock_of(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	cr_assert(fd >= 0 && flock(fd, LOCK_EX) == 0, "%s", path);
	return fd;
}

Test(tier_edges, reader_of_the_same_file_that_was_stopped_is_not_waited_for_for_ever, .timeout = 60)
{
	struct shmstore *s;
	int fd;

	TIERED_OR_SKIP();
	s = scratch_store("s");
	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0);
	fd = lock_of(tiered_file("s", "k"));
	cr_assert_eq(get_pattern(s, "k", SIZE, 1), 0, "%s", shmstore_error_detail());
	cr_assert_eq(shmstore_locate(s, KEY("k")), SHMSTORE_IN_MEMORY);
	close(fd);
	finish(s);
}

Test(tier_edges, eviction_that_was_stopped_holds_up_no_other_call)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	struct shmstore *s;
	char path[SCRATCH_PATH + 64];
	int fd;

	TIERED_OR_SKIP();
	s = scratch_store("s");
	what.bytes = SIZE;
	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_partition_evict(p, &what, NULL), 1);
	snprintf(path, sizeof(path), "%s/tier/%u/lock", scratch_partition_path(),
		 (unsigned)geteuid());
	fd = lock_of(path);
	cr_assert_eq(get_pattern(s, "k", SIZE, 1), 0);
	cr_assert_eq(shmstore_partition_evict(p, &what, NULL), 0, "another one is at it");
	cr_assert_eq(shmstore_locate(s, KEY("k")), SHMSTORE_IN_MEMORY);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0,
		     "one name needs no more than its store's lock");
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	cr_assert_eq(put_pattern(s, "k", SIZE, 2, 0), 0);
	close(fd);
	shmstore_partition_unref(p);
	finish(s);
}

/* ---- a tier that is full --------------------------------------------------------------------- */

static void full_disk(uint64_t max, uint64_t min_free)
{
	struct shmstore_tier_config config = SHMSTORE_TIER_CONFIG_INIT;
	struct shmstore *s;

	config.max = max;
	config.min_free = min_free;
	if (!tiered_begin(&config))
		cr_skip_test("no file system on disk: set SHMSTORE_TEST_DISK\n");
	s = scratch_store("s");
	cr_assert_eq(put_pattern(s, "k", 4 * SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), -ENOSPC);
	ensure_detail("disk full");
	ensure_detail(tiered_disk());
	cr_assert_eq(shmstore_locate(s, KEY("k")), SHMSTORE_IN_MEMORY);
	cr_assert_eq(get_pattern(s, "k", 4 * SIZE, 1), 0);
	cr_assert_eq(tiered_count_files(), 0);
	cr_assert_eq(tiered_count_anchors(), 0);
	config.max = config.min_free = 0;
	cr_assert(tiered_begin(&config));
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0, "the limit was raised: %s",
		     shmstore_error_detail());
	finish(s);
}

Test(tier_edges, no_more_is_written_than_may_be)
{
	full_disk(1 << 20, 0);
}

Test(tier_edges, no_less_is_left_free_than_must_be)
{
	full_disk(0, UINT64_C(1) << 50);
}

/* ---- owners that close, or die --------------------------------------------------------------- */

static struct shmstore *open_again(unsigned flags, bool keep)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s = NULL;

	options.flags = flags;
	options.keep = keep;
	cr_assert_eq(shmstore_open(p, "s", &options, &s), 0);
	shmstore_partition_unref(p);
	return s;
}

static void ensure_three(struct shmstore *s)
{
	cr_assert_eq(count_objects(s), 3);
	cr_assert_eq(shmstore_locate(s, KEY("demoted")), SHMSTORE_IN_TIER);
	cr_assert_eq(shmstore_locate(s, KEY("clean")), SHMSTORE_IN_MEMORY);
	cr_assert_eq(get_pattern(s, "memory", SIZE, 1), 0);
	cr_assert_eq(get_pattern(s, "demoted", SIZE, 2), 0, "%s", shmstore_error_detail());
	cr_assert_eq(get_pattern(s, "clean", SIZE, 3), 0);
	cr_assert_eq(shmstore_demote(s, KEY("clean"), 0), 0);
	cr_assert_eq(tiered_count_files(), 2, "its copy was still good");
}

Test(tier_edges, kept_store_keeps_what_is_in_the_tier)
{
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = open_again(0, true);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(put_pattern(s,
					 ((const char *const[]){"memory", "demoted", "clean"})[i],
					 SIZE, (uint64_t)i + 1, 0),
			     0);
	cr_assert_eq(shmstore_demote(s, KEY("demoted"), 0), 0);
	cr_assert_eq(shmstore_demote(s, KEY("clean"), 0), 0);
	cr_assert_eq(shmstore_promote(s, KEY("clean"), 0), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_books_close();
	s = open_again(0, false);
	ensure_three(s);
	finish(s);
}

/* A store in another process that was killed with an object in each place. */
static void kill_with_three(void)
{
	struct other o = other_start("s");

	cr_assert_eq(other_put(&o, "memory", SIZE, 1), 0);
	cr_assert_eq(other_put(&o, "demoted", SIZE, 2), 0);
	cr_assert_eq(other_put(&o, "clean", SIZE, 3), 0);
	cr_assert_eq(other_demote(&o, "demoted"), 0);
	cr_assert_eq(other_demote(&o, "clean"), 0);
	cr_assert_eq(other_promote(&o, "clean", 0), 0);
	other_kill(&o);
}

Test(tier_edges, dead_owners_tier_is_taken_over)
{
	struct shmstore *s;

	TIERED_OR_SKIP();
	kill_with_three();
	s = open_again(SHMSTORE_OPEN_ADOPT, false);
	ensure_three(s);
	finish(s);
}

Test(tier_edges, dead_owners_tier_goes_with_its_store)
{
	TIERED_OR_SKIP();
	kill_with_three();
	cr_assert_eq(tiered_count_files(), 2);
	ensure_nothing_left();
	ensure_tier_empty();
}

Test(tier_edges, dead_owners_object_stays_for_who_shares_it)
{
	struct shmstore_ticket t;
	struct other o;
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = scratch_store("s");
	o = other_start("o");
	cr_assert_eq(other_put(&o, "k", SIZE, 1), 0);
	cr_assert_eq(other_handoff(&o, "k", 60000, &t), 0);
	cr_assert_eq(shmstore_adopt(s, KEY("k"), &t, 0), 0);
	cr_assert_eq(other_demote(&o, "k"), 0);
	other_kill(&o);
	cr_assert_eq(shmstore_locate(s, KEY("k")), SHMSTORE_IN_TIER);
	cr_assert_eq(get_pattern(s, "k", SIZE, 1), 0);
	finish(s);
}

Test(tier_edges, lease_of_a_demoted_object_outlives_its_donor)
{
	struct shmstore_ticket t;
	struct shmstore *s;
	struct other o;

	TIERED_OR_SKIP();
	s = scratch_store("s");
	o = other_start("o");
	cr_assert_eq(other_put(&o, "k", SIZE, 1), 0);
	cr_assert_eq(other_demote(&o, "k"), 0);
	cr_assert_eq(other_handoff(&o, "k", 60000, &t), 0);
	other_kill(&o);
	cr_assert_eq(shmstore_adopt(s, KEY("k"), &t, 0), 0);
	cr_assert_eq(get_pattern(s, "k", SIZE, 1), 0);
	finish(s);
}
