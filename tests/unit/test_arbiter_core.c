/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arbiter's core: what its C interface promises and scenarios cannot say. Its allocations go
 * through a malloc() family of the test's own (--wrap), which can be told to fail the nth.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arbcheck.h"
#include "arbiter.h"

#define MIB  (UINT64_C(1) << 20)
#define POOL 1u

static struct arb *core;
static const struct arb_reply *replies;
static size_t n_replies;

static int step_at(const struct arb_message *m, uint64_t now_ns)
{
	return arb_step(core, m, now_ns, &replies, &n_replies);
}

#define step(...) step_at(&(struct arb_message){__VA_ARGS__}, 1)

static int bind(uint64_t context, uint64_t task)
{
	return step(.op = ARB_OP_BIND, .kind = ARB_DEDICATED, .context = context, .list = &task,
		    .n_list = 1);
}

static int reserve(uint64_t context, uint64_t reservation, uint64_t bytes)
{
	return step(.op = ARB_OP_RESERVE, .context = context, .pool = POOL,
		    .reservation = reservation, .bytes = bytes);
}

static void begin(void)
{
	cr_assert_eq(arb_new(&core), 0);
	cr_assert_eq(step(.op = ARB_OP_POOL_CREATE, .pool = POOL, .kind = ARB_PARTITION,
			  .bytes = 10 * MIB, .name = "shm:/x"),
		     ARB_OK);
}

static void end(void)
{
	cr_assert_null(arb_check(core), "%s", arb_check(core));
	core = arb_free(core);
	cr_assert_null(core);
}

static enum arb_state state_of(uint64_t context)
{
	struct arb_context_info i;

	return arb_context(core, context, &i) ? i.state : ARB_UNKNOWN;
}

static uint64_t used(void)
{
	struct arb_pool_info i;

	cr_assert(arb_pool(core, POOL, &i));
	return i.used;
}

TestSuite(arbiter_core, .init = begin, .fini = end);

Test(arbiter_core, free_of_nothing_is_legal)
{
	cr_assert_null(arb_free(NULL));
}

Test(arbiter_core, a_message_that_breaks_a_rule_is_invalid_and_changes_nothing)
{
	const uint64_t none = 0, twice[2] = {POOL, POOL}, bytes[2] = {1, 1};
	struct arb_totals before, after;

	bind(1, 1);
	arb_totals(core, &before);
	cr_expect_eq(step(.op = 0), ARB_INVALID);
	cr_expect_eq(step(.op = ARB_OP_SHUTDOWN + 1), ARB_INVALID);
	cr_expect_eq(step(.op = (enum arb_op) - 1), ARB_INVALID);
	cr_expect_eq(
		step(.op = ARB_OP_POOL_CREATE, .pool = POOL, .kind = ARB_PARTITION, .bytes = 1),
		ARB_INVALID);
	cr_expect_eq(step(.op = ARB_OP_POOL_CREATE, .pool = 0, .kind = ARB_PARTITION, .bytes = 1),
		     ARB_INVALID);
	cr_expect_eq(step(.op = ARB_OP_POOL_CREATE, .pool = 2, .kind = 9, .bytes = 1), ARB_INVALID);
	cr_expect_eq(step(.op = ARB_OP_POOL_CREATE, .pool = 2, .kind = ARB_PRIVATE, .bytes = 1,
			  .extra = 2),
		     ARB_INVALID);
	cr_expect_eq(
		step(.op = ARB_OP_POOL_CREATE, .pool = 2, .kind = ARB_PRIVATE, .bytes = UINT64_MAX),
		ARB_INVALID);
	cr_expect_eq(step(.op = ARB_OP_POOL_RESIZE, .pool = POOL, .bytes = UINT64_MAX),
		     ARB_INVALID);
	cr_expect_eq(step(.op = ARB_OP_BIND, .kind = ARB_DEDICATED, .context = 2), ARB_INVALID);
	cr_expect_eq(step(.op = ARB_OP_BIND, .kind = ARB_DEDICATED, .context = 2, .n_list = 1),
		     ARB_INVALID);
	cr_expect_eq(step(.op = ARB_OP_BIND, .kind = ARB_HELPER, .context = 2, .list = &none,
			  .n_list = 1),
		     ARB_INVALID);
	cr_expect_eq(step(.op = ARB_OP_UNBIND, .context = 1, .n_list = 1), ARB_INVALID);
	cr_expect_eq(reserve(1, 0, 1), ARB_INVALID);
	cr_expect_eq(
		step(.op = ARB_OP_RESERVE, .context = 1, .pool = 9, .reservation = 1, .bytes = 1),
		ARB_INVALID);
	cr_expect_eq(step(.op = ARB_OP_RESERVE, .context = 1, .reservation = 1, .list = twice,
			  .amounts = bytes, .n_list = 2),
		     ARB_INVALID);
	cr_expect_eq(step(.op = ARB_OP_RESERVE, .context = 1, .reservation = 1, .list = twice,
			  .n_list = 1),
		     ARB_INVALID);
	cr_expect_eq(step(.op = ARB_OP_RELEASE, .reservation = 7), ARB_INVALID);
	cr_expect_eq(step(.op = ARB_OP_RESIZE, .reservation = 7, .bytes = 1), ARB_INVALID);
	cr_expect_eq(step(.op = ARB_OP_SPILLED, .reservation = 7, .bytes = 1), ARB_INVALID);
	cr_expect_eq(step(.op = ARB_OP_KNOB, .kind = 99, .value = 1), ARB_INVALID);
	cr_expect_eq(step(.op = ARB_OP_KNOB, .kind = ARB_KNOB_MAX_BYPASS, .value = -1),
		     ARB_INVALID);
	cr_expect_eq(step(.op = ARB_OP_INJECT, .context = 9, .kind = ARB_INJECT_RETRY, .value = 1),
		     ARB_INVALID);
	cr_expect_eq(step(.op = ARB_OP_CANCEL, .context = 9), ARB_INVALID);
	arb_totals(core, &after);
	cr_expect_eq(after.n_contexts, before.n_contexts);
	cr_expect_eq(after.n_reservations, 0);
	cr_expect_eq(after.n_tasks, before.n_tasks);
	cr_expect_eq(after.n_pools, 1);
}

Test(arbiter_core, bytes_near_the_end_of_the_numbers_are_too_big)
{
	bind(1, 1);
	cr_expect_eq(reserve(1, 1, UINT64_MAX), ARB_TOOBIG);
	cr_expect_eq(reserve(1, 1, INT64_MAX), ARB_TOOBIG);
	cr_expect_eq(reserve(1, 1, MIB), ARB_OK);
	cr_expect_eq(step(.op = ARB_OP_RESIZE, .context = 1, .reservation = 1, .bytes = UINT64_MAX),
		     ARB_INVALID);
	cr_expect_eq(step(.op = ARB_OP_RESIZE, .context = 1, .reservation = 1, .bytes = INT64_MAX),
		     ARB_INVALID);
	cr_expect_eq(
		step(.op = ARB_OP_RESIZE, .context = 1, .reservation = 1, .bytes = INT64_MAX / 4),
		ARB_TOOBIG);
	cr_expect_eq(used(), MIB);
}

Test(arbiter_core, ids_are_64_bits_wide)
{
	const uint64_t top = UINT64_MAX, pools[2] = {POOL, UINT64_MAX}, bytes[2] = {1, 1};

	cr_assert_eq(bind(top, top), ARB_OK);
	cr_assert_eq(bind(top & UINT32_MAX, top & UINT32_MAX), ARB_OK);
	cr_assert_eq(reserve(top, top, MIB), ARB_OK);
	cr_assert_eq(reserve(top & UINT32_MAX, top & UINT32_MAX, 2 * MIB), ARB_OK);
	cr_assert_eq(step(.op = ARB_OP_RELEASE, .reservation = top), ARB_OK);
	cr_expect_eq(used(), 2 * MIB);
	cr_assert_eq(step(.op = ARB_OP_POOL_CREATE, .pool = top, .kind = ARB_PRIVATE, .bytes = MIB),
		     ARB_OK);
	/* the id after the last one would be 0 */
	cr_expect_eq(step(.op = ARB_OP_RESERVE, .context = top, .reservation = top, .list = pools,
			  .amounts = bytes, .n_list = 2),
		     ARB_INVALID);
}

Test(arbiter_core, lists_have_an_end)
{
	uint64_t ids[ARB_LIST_MAX + 1], ones[ARB_LIST_MAX + 1];

	for (uint64_t i = 0; i <= ARB_LIST_MAX; i++) {
		ids[i] = i + 1;
		ones[i] = 1;
		if (i)
			step(.op = ARB_OP_POOL_CREATE, .pool = i + 1, .kind = ARB_PRIVATE,
			     .bytes = MIB);
	}
	cr_expect_eq(step(.op = ARB_OP_BIND, .kind = ARB_HELPER, .context = 1, .list = ids,
			  .n_list = ARB_LIST_MAX + 1),
		     ARB_INVALID);
	cr_expect_eq(step(.op = ARB_OP_BIND, .kind = ARB_HELPER, .context = 1, .list = ids,
			  .n_list = ARB_LIST_MAX),
		     ARB_OK);
	cr_expect_eq(step(.op = ARB_OP_RESERVE, .context = 1, .reservation = 1, .list = ids,
			  .amounts = ones, .n_list = ARB_LIST_MAX + 1),
		     ARB_INVALID);
	cr_expect_eq(step(.op = ARB_OP_RESERVE, .context = 1, .reservation = 1, .list = ids,
			  .amounts = ones, .n_list = ARB_LIST_MAX),
		     ARB_OK);
	for (uint64_t i = 1; i <= ARB_LIST_MAX; i++)
		cr_expect_eq(step(.op = ARB_OP_RELEASE, .reservation = i), ARB_OK);
}

Test(arbiter_core, a_pool_goes_when_nothing_is_in_it)
{
	bind(1, 1);
	reserve(1, 1, MIB);
	cr_expect_eq(step(.op = ARB_OP_POOL_REMOVE, .pool = POOL), ARB_INVALID);
	step(.op = ARB_OP_RELEASE, .reservation = 1);
	cr_expect_eq(step(.op = ARB_OP_POOL_REMOVE, .pool = POOL), ARB_OK);
	cr_expect_eq(reserve(1, 1, MIB), ARB_INVALID);
}

Test(arbiter_core, a_withheld_reply_says_what_it_is_about)
{
	bind(1, 1);
	bind(2, 2);
	cr_assert_eq(reserve(1, 1, 8 * MIB), ARB_OK);
	cr_assert_eq(reserve(2, 2, 4 * MIB), ARB_PENDING);
	cr_expect_eq(arb_n_parked(core), 1);
	cr_expect_eq(reserve(2, 3, MIB), ARB_INVALID, "one call at a time");
	cr_expect_eq(step(.op = ARB_OP_RELEASE, .reservation = 2), ARB_INVALID,
		     "it is not there so far");
	cr_expect_eq(reserve(1, 2, MIB), ARB_INVALID, "but its id is taken");
	cr_assert_eq(step(.op = ARB_OP_RELEASE, .reservation = 1), ARB_OK);
	cr_assert_eq(n_replies, 1);
	cr_expect_eq(replies->kind, ARB_REPLY_DONE);
	cr_expect_eq(replies->outcome, ARB_OK);
	cr_expect_eq(replies->context, 2);
	cr_expect_eq(replies->reservation, 2);
	cr_expect_eq(replies->pool, POOL);
	cr_expect_eq(replies->bytes, 4 * MIB);
	cr_expect_eq(used(), 4 * MIB, "booked with the wake-up");
}

Test(arbiter_core, deadlines_are_kept_by_any_message_and_the_earliest_is_said)
{
	bind(1, 1);
	bind(2, 2);
	bind(3, 3);
	reserve(1, 1, 10 * MIB);
	cr_expect_eq(arb_next_deadline(core), 0);
	step(.op = ARB_OP_RESERVE, .context = 2, .pool = POOL, .reservation = 2, .bytes = 1,
	     .deadline_ns = 500);
	step(.op = ARB_OP_RESERVE, .context = 3, .pool = POOL, .reservation = 3, .bytes = 1,
	     .deadline_ns = 300);
	cr_expect_eq(arb_next_deadline(core), 300);
	cr_assert_eq(step_at(&(struct arb_message){.op = ARB_OP_RETRY_BEGIN, .context = 1}, 300),
		     ARB_OK);
	cr_assert_eq(n_replies, 1);
	cr_expect_eq(replies->context, 3);
	cr_expect_eq(replies->outcome, ARB_TIMEDOUT);
	cr_expect_eq(arb_next_deadline(core), 500);
	/* time does not run backwards */
	step_at(&(struct arb_message){.op = ARB_OP_RETRY_BEGIN, .context = 1}, 299);
	cr_expect_eq(n_replies, 0);
	cr_expect_eq(step_at(&(struct arb_message){.op = ARB_OP_RESERVE,
						   .context = 3,
						   .pool = POOL,
						   .reservation = 3,
						   .bytes = 1,
						   .deadline_ns = 300},
			     400),
		     ARB_TIMEDOUT, "it has passed already");
}

Test(arbiter_core, split_says_who_holds_what)
{
	bind(1, 1);
	cr_assert_eq(reserve(1, 1, 6 * MIB), ARB_OK);
	cr_assert_eq(reserve(1, 2, 6 * MIB), ARB_PENDING);
	cr_assert_eq(n_replies, 1);
	cr_assert_eq(replies->outcome, ARB_RETRY);
	cr_assert_eq(step(.op = ARB_OP_READY, .context = 1), ARB_PENDING);
	cr_assert_eq(n_replies, 1);
	cr_assert_eq(replies->outcome, ARB_SPLIT);
	cr_assert_not_null(replies->why);
	cr_expect_not_null(strstr(replies->why, "shm:/x"));
	cr_expect_not_null(strstr(replies->why, "task 0:1 holds 6.0 MiB"), "%s", replies->why);
	cr_expect_eq(state_of(1), ARB_RUNNING);
}

static bool count(void *arg, const struct arb_transition *t)
{
	uint64_t *last = arg;

	cr_assert(*last == 0 || t->number == *last + 1, "they are numbered");
	*last = t->number;
	return true;
}

static bool first_only(void *arg, const struct arb_transition *t)
{
	*(struct arb_transition *)arg = *t;
	return false;
}

Test(arbiter_core, the_log_is_a_ring_of_the_last_transitions)
{
	struct arb_transition first = {0};
	uint64_t last = 0;

	for (uint64_t i = 1; i <= ARB_LOG_SIZE; i++) { /* two each */
		bind(i, i);
		step(.op = ARB_OP_TASK_END, .task = i);
	}
	arb_log(core, 0, first_only, &first);
	cr_expect_eq(first.number, ARB_LOG_SIZE + 1);
	arb_log(core, 0, count, &last);
	cr_expect_eq(last, 2 * ARB_LOG_SIZE);
	arb_log(core, last - 1, first_only, &first);
	cr_expect_eq(first.number, last);
}

Test(arbiter_core, numbers_of_an_ended_task_last_for_a_thousand_more)
{
	struct arb_stats s;

	bind(1, 1);
	reserve(1, 1, 3 * MIB);
	step(.op = ARB_OP_TASK_END, .task = 1, .flags = ARB_RELEASE);
	cr_assert(arb_stats(core, 1, POOL, 1, 0, &s));
	cr_expect_eq(s.max, 3 * MIB);
	cr_expect_eq(s.current, 0);
	cr_expect(!arb_stats(core, 1, 99, 1, 0, &s), "no such pool");
	for (uint64_t i = 2; i <= 1001; i++) {
		bind(i, i);
		step(.op = ARB_OP_TASK_END, .task = i);
	}
	cr_expect(!arb_stats(core, 1, POOL, 1, 0, &s));
	cr_expect(arb_stats(core, 2, 0, 1, 0, &s));
}

Test(arbiter_core, reset_begins_anew_but_for_what_is_there)
{
	struct arb_stats s;

	bind(1, 1);
	reserve(1, 1, 3 * MIB);
	reserve(1, 2, 5 * MIB);
	step(.op = ARB_OP_RELEASE, .reservation = 2);
	cr_assert(arb_stats(core, 1, POOL, 1, ARB_RESET, &s));
	cr_expect_eq(s.max, 8 * MIB);
	cr_expect_eq(s.n_grants, 2);
	cr_assert(arb_stats(core, 1, POOL, 1, 0, &s));
	cr_expect_eq(s.max, 3 * MIB);
	cr_expect_eq(s.current, 3 * MIB);
	cr_expect_eq(s.n_grants, 0);
}

Test(arbiter_core, after_shutdown_nobody_is_bound_and_nobody_waits)
{
	bind(1, 1);
	bind(2, 2);
	reserve(1, 1, 10 * MIB);
	cr_assert_eq(reserve(2, 2, 1), ARB_PENDING);
	cr_assert_eq(step(.op = ARB_OP_SHUTDOWN), ARB_OK);
	cr_assert_eq(n_replies, 1);
	cr_expect_eq(replies->outcome, ARB_REMOVED);
	cr_expect_eq(arb_n_parked(core), 0);
	cr_expect_eq(bind(3, 3), ARB_DOWN);
	cr_expect_eq(step(.op = ARB_OP_TASK_BEGIN, .task = 3, .value = ARB_PRIORITY_DEFAULT),
		     ARB_DOWN);
}

Test(arbiter_core, every_name_is_there)
{
	for (int i = ARB_OP_POOL_CREATE; i <= ARB_OP_SHUTDOWN; i++)
		cr_expect_not_null(arb_op_name((enum arb_op)i));
	for (int i = ARB_UNKNOWN; i <= ARB_REMOVE_THROW; i++)
		cr_expect_not_null(arb_state_name((enum arb_state)i));
	for (int i = ARB_OK; i <= ARB_INVALID; i++)
		cr_expect_not_null(arb_outcome_name((enum arb_outcome)i));
	for (int i = ARB_KNOB_MAX_BYPASS; i <= ARB_KNOB_OS_PROBE; i++)
		cr_expect_not_null(arb_knob_name((enum arb_knob)i));
}

/* ---- without memory -------------------------------------------------------------------------- */

static long fail_at = -1; /* so many allocations succeed; < 0: all */

static bool fails(void)
{
	return fail_at >= 0 && fail_at-- == 0;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_reallocarray(void *p, size_t n, size_t size);
struct arbslab;
void *__real_arbslab_get(struct arbslab *s);
/* Seen outside, as the linker wants them to be where a sanitizer's library allocates. */
#pragma GCC visibility push(default)
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_reallocarray(void *p, size_t n, size_t size);
#pragma GCC visibility pop
void *__wrap_arbslab_get(struct arbslab *s);

void *__wrap_malloc(size_t n)
{
	return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
	return fails() ? NULL : __real_reallocarray(p, n, size);
}

/* Also where a piece that was made before has room. */
void *__wrap_arbslab_get(struct arbslab *s)
{
	return fails() ? NULL : __real_arbslab_get(s);
}

/* m fails at its first, second, … allocation, changes nothing each time, and succeeds in
 * the end. Returns at which. */
static long until_it_succeeds(const struct arb_message *m)
{
	struct arb_totals before, after;
	long n = 0;
	int o;

	for (;; n++) {
		arb_totals(core, &before);
		fail_at = n;
		o = step_at(m, 1);
		fail_at = -1;
		cr_assert_null(arb_check(core), "%s, allocation %ld: %s", arb_op_name(m->op), n,
			       arb_check(core));
		if (o != -ENOMEM)
			break;
		arb_totals(core, &after);
		cr_expect_eq(after.n_contexts, before.n_contexts);
		cr_expect_eq(after.n_tasks, before.n_tasks, "%s, allocation %ld",
			     arb_op_name(m->op), n);
		cr_expect_eq(after.n_pools, before.n_pools);
		cr_expect_eq(after.n_reservations, before.n_reservations);
		cr_expect_eq(n_replies, 0);
	}
	cr_assert(o == ARB_OK || o == ARB_PENDING, "%s: %s", arb_op_name(m->op),
		  arb_outcome_name((enum arb_outcome)o));
	return n;
}

Test(arbiter_core, without_memory_nothing_is_changed)
{
	const uint64_t tasks[3] = {11, 12, 13}, pools[2] = {POOL, 2}, bytes[2] = {MIB, MIB};
	struct arb *other = NULL;

	fail_at = 0;
	cr_expect_eq(arb_new(&other), -ENOMEM);
	cr_expect_null(other);
	cr_expect_gt(until_it_succeeds(&(struct arb_message){.op = ARB_OP_POOL_CREATE,
							     .pool = 2,
							     .kind = ARB_PRIVATE,
							     .bytes = 10 * MIB}),
		     0);
	cr_expect_gt(until_it_succeeds(&(struct arb_message){.op = ARB_OP_BIND,
							     .kind = ARB_HELPER,
							     .context = 1,
							     .list = tasks,
							     .n_list = 3}),
		     3);
	cr_expect_gt(until_it_succeeds(&(struct arb_message){
			     .op = ARB_OP_TASK_BEGIN, .task = 14, .value = 1}),
		     0);
	cr_expect_gt(until_it_succeeds(&(struct arb_message){.op = ARB_OP_RESERVE,
							     .context = 1,
							     .reservation = 1,
							     .list = pools,
							     .amounts = bytes,
							     .n_list = 2}),
		     3);
	cr_expect_gt(until_it_succeeds(
			     &(struct arb_message){.op = ARB_OP_PIN, .reservation = 1, .task = 14}),
		     0);
	cr_expect_gt(until_it_succeeds(
			     &(struct arb_message){.op = ARB_OP_OWN, .reservation = 2, .task = 14}),
		     0);
	cr_expect_gt(until_it_succeeds(&(struct arb_message){.op = ARB_OP_RESERVE,
							     .context = 9,
							     .pool = POOL,
							     .reservation = 5,
							     .bytes = MIB}),
		     0);
	cr_expect_eq(used(), 2 * MIB);
}
