/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A resident was looked at and then dropped. A promoter that linked it in between had an object of
 * its own: the next name that came back read the tier file again, and one object was two files. And
 * a promoter that came while it was looked at took it for missing, with the same end.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "api.h"
#include "interpose.h"
#include "tiered.h"

#define SIZE 300000u

static struct shmstore *promoter; /* of the key "b", while a resident is dropped; NULL: not armed */
static pthread_t thread;
static int result;

static void *promote(void *arg)
{
	result = shmstore_promote(arg, KEY("b"), 0);
	return NULL;
}

static bool is_resident(const char *name)
{
	const char *end = strrchr(name, '.');

	return end && strcmp(end, ".object") == 0;
}

int unlinkat(int dirfd, const char *name, int flags)
{
	typedef int fn(int, const char *, int);

	if (promoter && is_resident(name)) {
		/* It is done meanwhile, or waits for us. */
		cr_assert_eq(pthread_create(&thread, NULL, promote, promoter), 0);
		promoter = NULL;
		nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
	}
	return NEXT(fn *, "unlinkat")(dirfd, name, flags);
}

/* Two stores name a demoted object, whose resident nobody names. */
static void two_stubs_and_a_resident(struct shmstore *s, struct shmstore *t)
{
	struct shmstore_ticket ticket;
	struct shmstore_view *v;

	cr_assert_eq(put_pattern(s, "a", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("a"), 60000, &ticket), 0);
	cr_assert_eq(shmstore_adopt(t, KEY("b"), &ticket, 0), 0);
	cr_assert_eq(shmstore_demote(s, KEY("a"), 0), 0);
	v = get_view(s, "a", 0);
	cr_assert_eq(shmstore_demote(s, KEY("a"), 0), 0);
	shmstore_view_unref(v);
	cr_assert_eq(tiered_count_residents(), 1);
}

static void check_one_file(struct shmstore *s, struct shmstore *t)
{
	cr_assert_eq(shmstore_promote(s, KEY("a"), 0), 0);
	cr_assert_eq(shmstore_promote(t, KEY("b"), 0), 0);
	cr_assert_eq(inode_of("s", "a"), inode_of("t", "b"), "one object is two files");
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(shmstore_close(t), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

Test(tier_resident_dropped, a_promoter_waits)
{
	struct shmstore_evict little = SHMSTORE_EVICT_INIT;
	struct shmstore *s, *t;

	TIERED_OR_SKIP();
	s = scratch_store("s");
	t = scratch_store("t");
	two_stubs_and_a_resident(s, t);
	little.bytes = 1;
	promoter = t;
	shmstore_partition_evict(scratch_partition(), &little, NULL);
	cr_assert_null(promoter, "a resident was dropped");
	cr_assert_eq(pthread_join(thread, NULL), 0);
	cr_assert_eq(result, 0);
	check_one_file(s, t);
}

Test(tier_resident_dropped, so_it_does_at_the_end_of_a_demotion)
{
	struct shmstore *s, *t;

	TIERED_OR_SKIP();
	s = scratch_store("s");
	t = scratch_store("t");
	two_stubs_and_a_resident(s, t);
	cr_assert_eq(shmstore_promote(s, KEY("a"), 0), 0);
	promoter = t;
	cr_assert_eq(shmstore_demote(s, KEY("a"), 0), 0);
	cr_assert_null(promoter, "a resident was dropped");
	cr_assert_eq(pthread_join(thread, NULL), 0);
	cr_assert_eq(result, 0);
	check_one_file(s, t);
}
