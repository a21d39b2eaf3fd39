/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structures that a call fills had no size that the caller said: one that grows would be written
 * over the end of that of a program compiled before. Here callers have shorter ones and longer ones
 * than the library, and those that 0.1 had.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <shmstore/arbiter.h>
#include <shmstore/inspect.h>

#include "api.h"
#include "tiered.h"

#define CANARY 0xEE
#define ROOM   32768

static struct shmstore_partition *p;
static struct shmstore *s;
/* Aligned as a structure is. */
static _Alignas(64) unsigned char whole[ROOM], mine[ROOM];

#define CALL(name, ...) shmstore_##name##_sized(__VA_ARGS__, size)

static int usage(void *ret, size_t size)
{
	return CALL(usage, s, ret);
}

static int partition_usage(void *ret, size_t size)
{
	return CALL(partition_usage, p, 0, ret);
}

static int partition_gc(void *ret, size_t size)
{
	return CALL(partition_gc, p, 0, ret);
}

static int partition_info(void *ret, size_t size)
{
	return CALL(partition_info, p, ret);
}

static int partition_books(void *ret, size_t size)
{
	return CALL(partition_books, p, NULL, NULL, ret);
}

static int partition_reconcile(void *ret, size_t size)
{
	return CALL(partition_reconcile, p, NULL, NULL, ret);
}

static int partition_gc_plan(void *ret, size_t size)
{
	return CALL(partition_gc_plan, p, 0, NULL, NULL, ret);
}

static int partition_reap(void *ret, size_t size)
{
	return CALL(partition_reap, p, scratch_store_path("none", ""), 0, NULL, NULL, ret, NULL);
}

static int partition_survey(void *ret, size_t size)
{
	struct shmstore_survey survey = {.size = sizeof(survey)};

	return CALL(partition_survey, p, &survey, ret);
}

static int tier_info(void *ret, size_t size)
{
	return CALL(tier_info, p, ret);
}

static int partition_evict(void *ret, size_t size)
{
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;

	what.watermarks = true;
	return CALL(partition_evict, p, &what, ret);
}

/* Without a daemon these fail. */
static int arb_pool_info(void *ret, size_t size)
{
	return CALL(arb_pool_info, s, 1, ret);
}

static int arb_state(void *ret, size_t size)
{
	return CALL(arb_state, s, NULL, ret);
}

static int arb_stats(void *ret, size_t size)
{
	return CALL(arb_stats, s, 0, 0, false, ret);
}

static int arb_next(void *ret, size_t size)
{
	return CALL(arb_next, s, ret);
}

/* size: of 0.1's structure, up to its last member, for good. */
struct function {
	const char *name;
	int (*call)(void *ret, size_t size);
	size_t size, ours;
	bool moves; /* its numbers differ from call to call */
};
#define FUNCTION(name, type, size, moves)                                \
	{                                                                \
#name, name, size, sizeof(struct shmstore_##type), moves \
	}

static const struct function functions[] = {
	FUNCTION(usage, store_usage, 48, false),
	FUNCTION(partition_usage, usage, 144, false),
	FUNCTION(partition_gc, gc_report, 48, false),
	FUNCTION(partition_info, partition_info, 152, false),
	FUNCTION(partition_books, books_total, 32, false),
	FUNCTION(partition_reconcile, usage, 144, false),
	FUNCTION(partition_gc_plan, gc_report, 48, false),
	FUNCTION(partition_reap, gc_report, 48, false),
	FUNCTION(partition_survey, usage, 144, false),
	FUNCTION(arb_pool_info, arb_pool_info, 48, false),
	FUNCTION(arb_state, arb_info, 40, false),
	FUNCTION(arb_stats, arb_stats, 80, false),
	FUNCTION(arb_next, arb_done, 48, false),
};
static const struct function of_the_tier[] = {
	FUNCTION(tier_info, tier_info, 8352, true),
	FUNCTION(partition_evict, evict_report, 80, true),
};

static bool all(const unsigned char *bytes, size_t n, unsigned char value)
{
	for (size_t i = 0; i < n; i++) {
		if (bytes[i] != value)
			return false;
	}
	return true;
}

/* The caller's structure has have bytes. */
static void check(const struct function *f, size_t have)
{
	size_t both = have < f->ours ? have : f->ours;
	int r, full;

	memset(whole, CANARY, sizeof(whole));
	full = f->call(whole, f->ours);
	memset(mine, CANARY, sizeof(mine));
	r = f->call(mine, have);
	cr_assert_eq(r, full, "%s: %d instead of %d", f->name, r, full);
	cr_assert(all(mine + have, sizeof(mine) - have, CANARY),
		  "%s wrote over the end of a structure of %zu bytes", f->name, have);
	if (r < 0) {
		cr_assert(all(mine, have, CANARY), "%s failed and wrote", f->name);
		return;
	}
	cr_assert(f->moves || memcmp(mine, whole, both) == 0,
		  "%s: other bytes in a structure of %zu", f->name, have);
	cr_assert(have <= f->ours || all(mine + f->ours, have - f->ours, 0),
		  "%s: what it does not know of a structure of %zu is not zero", f->name, have);
}

static void check_all(const struct function *list, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct function *f = &list[i];

		for (size_t have = 0; have <= f->ours + 64;
		     have += f->ours > 1000 && have > 64 ? 1000 : 8)
			check(f, have);
		check(f, f->ours);
		check(f, f->ours + 64);
		check(f, f->size);
	}
}

Test(sizes, callers_have_shorter_and_longer_ones)
{
	p = scratch_partition();
	s = scratch_store("s");
	cr_assert_eq(put_pattern(s, "k", 100000, 1, 0), 0);
	check_all(functions, sizeof(functions) / sizeof(functions[0]));
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
}

Test(sizes, those_of_the_tier)
{
	struct shmstore_tier_info *info = (struct shmstore_tier_info *)(void *)mine;

	TIERED_OR_SKIP();
	p = scratch_partition();
	s = scratch_store("s");
	check_all(of_the_tier, sizeof(of_the_tier) / sizeof(of_the_tier[0]));
	/* It points into itself: into the caller's. */
	cr_assert_eq(tier_info(mine, sizeof(*info) + 8), 0);
	cr_assert_eq(info->config.path, info->config_path);
	cr_assert_eq(tier_info(mine, offsetof(struct shmstore_tier_info, config_path)), 0);
	cr_assert_str_empty(info->config.path);
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
}

/* As who compiles it: the macro says the size, whatever the arguments are. */
Test(sizes, the_header_says_them)
{
	struct shmstore_usage u = {0};

	p = scratch_partition();
	cr_assert_eq(shmstore_partition_survey(
			     p,
			     &(struct shmstore_survey){.size = sizeof(struct shmstore_survey),
						       .flags = 0},
			     &u),
		     0);
	cr_assert_gt(u.used, 0);
	cr_assert_eq(shmstore_partition_gc(p, 0, NULL), 0);
	shmstore_partition_unref(p);
}
