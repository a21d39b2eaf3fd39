/* SPDX-License-Identifier: Apache-2.0 */
/* Reservations through a daemon with the real core: who waits, who is served first, what a call may
 * end with; leases; event loops. */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "api.h"
#include "arbcase.h"

#define PART SHMSTORE_ARB_PARTITION

/* Somebody who runs: where all wait, somebody would be rolled back. */
static void somebody_runs(struct shmstore *s)
{
	struct shmstore_arb_context *x;

	cr_assert_eq(shmstore_arb_context_new(s, &x), 0);
	cr_assert_eq(shmstore_arb_bind(s, x, arbcase_task(s, 1)), 0);
}

Test(arb_reserve, waits_for_a_release)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, 0);
	struct shmstore_arb_reservation r;
	struct shmstore_arb_pool_info info;
	struct arbwaiter w;

	cr_assert_eq(shmstore_arb_reserve(c.s, PART, ARB_MIB - 100, NULL, &r), 0);
	arbwaiter_start(&w, c.s, arbcase_task(c.s, 5), 1000, 0);
	cr_assert(fakearb_waits(c.a, 1));
	cr_assert_eq(shmstore_arb_pool_info(c.s, PART, &info), 0);
	cr_assert_eq(info.capacity, ARB_MIB);
	cr_assert_eq(info.used, ARB_MIB - 100);
	cr_assert_eq(info.n_waiting, 1);
	cr_assert_eq(shmstore_arb_release(c.s, &r), 0);
	cr_assert_eq(arbwaiter_end(&w, false), 0);
	cr_assert_eq(fakearb_used(c.a), 1000);
	cr_assert_eq(shmstore_arb_release(c.s, &w.r), 0, "by another thread");
	cr_assert(fakearb_uses(c.a, 0));
	arbcase_end(&c);
}

Test(arb_reserve, higher_priority_is_served_first)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, 0);
	struct shmstore_arb_task_options o = SHMSTORE_ARB_TASK_OPTIONS_INIT;
	struct shmstore_arb_reservation r;
	struct arbwaiter low, high;
	uint32_t task;

	o.inherit = c.task; /* 100 */
	cr_assert_eq(shmstore_arb_task_begin(c.s, &o, &task), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, ARB_MIB, NULL, &r), 0);
	arbwaiter_start(&low, c.s, arbcase_task(c.s, 50), 700 * ARB_KIB, 0);
	cr_assert(fakearb_waits(c.a, 1));
	arbwaiter_start(&high, c.s, task, 700 * ARB_KIB, 0);
	cr_assert(fakearb_waits(c.a, 2));
	cr_assert_eq(shmstore_arb_release(c.s, &r), 0);
	cr_assert_eq(arbwaiter_end(&high, false), 0);
	cr_assert_eq(fakearb_parked(c.a), 1, "the other one waits on");
	cr_assert_eq(shmstore_arb_release(c.s, &high.r), 0);
	cr_assert_eq(arbwaiter_end(&low, true), 0);
	arbcase_end(&c);
}

Test(arb_reserve, outcomes_that_are_no_memory)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, 0);
	struct shmstore_arb_how nonblock = {.flags = SHMSTORE_ARB_NONBLOCK},
				soon = {.timeout_ms = 30};
	struct shmstore_arb_reservation r, other = {.bytes = 77};

	somebody_runs(c.s);
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, ARB_MIB + 1, NULL, &other),
		     SHMSTORE_ARB_TOOBIG);
	cr_assert_str_eq(shmstore_arb_outcome_name(SHMSTORE_ARB_TOOBIG), "TOOBIG");
	cr_assert_str_neq(shmstore_arb_why(), "");
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, ARB_MIB, NULL, &r), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, 1, &nonblock, &other), SHMSTORE_ARB_AGAIN);
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, 1, &soon, &other), SHMSTORE_ARB_TIMEDOUT);
	cr_assert_eq(other.bytes, 77, "written on success only");
	cr_assert_eq(shmstore_arb_release(c.s, &r), 0);
	arbcase_end(&c);
}

Test(arb_reserve, unbound_never_waits)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 4096, 0);
	struct shmstore_arb_reservation r, other;

	cr_assert_eq(shmstore_arb_unbind(c.s, NULL, NULL, 0), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, ARB_MIB, NULL, &r), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, 1, NULL, &other), SHMSTORE_ARB_NOMEM);
	cr_assert_eq(shmstore_arb_release(c.s, &r), 0);
	arbcase_end(&c);
}

Test(arb_reserve, cancel_and_unbind_end_a_wait)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, 0);
	struct shmstore_arb_reservation r;
	struct arbwaiter w;
	uint32_t task = arbcase_task(c.s, 5);

	cr_assert_eq(shmstore_arb_reserve(c.s, PART, ARB_MIB, NULL, &r), 0);
	arbwaiter_start(&w, c.s, task, 1, 0);
	cr_assert(fakearb_waits(c.a, 1));
	cr_assert_eq(shmstore_arb_task_end(c.s, task), 0);
	cr_assert_eq(arbwaiter_end(&w, false), SHMSTORE_ARB_REMOVED);
	cr_assert_eq(shmstore_arb_cancel(c.s, NULL), 0, "that waits for nothing");
	cr_assert_eq(shmstore_arb_release(c.s, &r), 0);
	arbcase_end(&c);
}

Test(arb_reserve, grows_and_shrinks)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, 0);
	struct shmstore_arb_how nonblock = {.flags = SHMSTORE_ARB_NONBLOCK};
	struct shmstore_arb_reservation r;

	cr_assert_eq(shmstore_arb_reserve(c.s, PART, 1000, NULL, &r), 0);
	cr_assert_eq(shmstore_arb_resize(c.s, &r, 5000, NULL), 0);
	cr_assert_eq(fakearb_used(c.a), 5000);
	cr_assert_eq(r.bytes, 5000);
	cr_assert_eq(shmstore_arb_resize(c.s, &r, 2 * ARB_MIB, NULL), SHMSTORE_ARB_TOOBIG);
	cr_assert_eq(r.bytes, 5000);
	cr_assert_eq(shmstore_arb_resize(c.s, &r, 100, &nonblock), 0);
	cr_assert(fakearb_uses(c.a, 100));
	cr_assert_eq(shmstore_arb_commit(c.s, &r, 60), 0);
	cr_assert(fakearb_uses(c.a, 60));
	cr_assert_eq(fakearb_objects(c.a), 60);
	cr_assert_eq(r.bytes, 0);
	arbcase_end(&c);
}

Test(arb_reserve, many_pools_are_all_or_nothing)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, 0);
	struct shmstore_arb_reservation r[2] = {{.pool = PART, .bytes = 1000}, {.bytes = 300}},
					full;
	struct shmstore_arb_pool_info info;
	struct shmstore_arb_how nonblock = {.flags = SHMSTORE_ARB_NONBLOCK};
	uint32_t pool;

	cr_assert_eq(shmstore_arb_pool_create(c.s, "own", 400, 0, &pool), 0);
	r[1].pool = pool;
	cr_assert_eq(shmstore_arb_reserve_many(c.s, r, 2, NULL), 0);
	cr_assert_eq(fakearb_used(c.a), 1000);
	cr_assert_eq(shmstore_arb_pool_info(c.s, pool, &info), 0);
	cr_assert_eq(info.used, 300);
	cr_assert_eq(shmstore_arb_reserve_many(c.s, &(struct shmstore_arb_reservation){.pool = 0},
					       1, NULL),
		     -EINVAL);
	cr_assert_eq(shmstore_arb_reserve_many(c.s, r, 17, NULL), -EINVAL);
	struct shmstore_arb_reservation more[2] = {r[0], r[1]};
	cr_assert_eq(shmstore_arb_reserve_many(c.s, more, 2, &nonblock), SHMSTORE_ARB_AGAIN);
	cr_assert_eq(fakearb_used(c.a), 1000, "nothing of it");
	for (int i = 0; i < 2; i++)
		cr_assert_eq(shmstore_arb_release(c.s, &r[i]), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, pool, 400, NULL, &full), 0);
	cr_assert_eq(shmstore_arb_pool_remove(c.s, pool), -EINVAL, "in use");
	cr_assert_eq(shmstore_arb_release(c.s, &full), 0);
	cr_assert_eq(shmstore_arb_pool_remove(c.s, pool), 0);
	arbcase_end(&c);
}

/* ---- leases ---- */

static uint64_t n_asked(struct fakearb *a)
{
	return atomic_load(&a->n_ops[WIRE_ARB_RESERVE]) + atomic_load(&a->n_ops[WIRE_ARB_LEASE]);
}

Test(arb_reserve, small_ones_are_not_asked_for)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 64 * ARB_KIB, 0);
	struct shmstore_arb_reservation r[10];
	struct wire_lease *l;

	for (int i = 0; i < 10; i++)
		cr_assert_eq(shmstore_arb_reserve(c.s, PART, 4096, NULL, &r[i]), 0);
	cr_assert_eq(n_asked(c.a), 1, "but for the lease");
	l = fakearb_lease(c.a);
	cr_assert_eq(atomic_load(&l->charged), 10 * 4096);
	for (int i = 0; i < 5; i++)
		cr_assert_eq(shmstore_arb_release(c.s, &r[i]), 0);
	for (int i = 5; i < 10; i++)
		cr_assert_eq(shmstore_arb_commit(c.s, &r[i], 4096), 0);
	cr_assert_eq(atomic_load(&l->charged), 5 * 4096);
	cr_assert_eq(atomic_load(&l->settled), 5 * 4096);
	arbcase_end(&c);
}

Test(arb_reserve, recalled_lease_serves_others)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 64 * ARB_KIB, 0);
	struct shmstore *s = arbcase_store(c.p, "b", 0);
	struct shmstore_arb_reservation own, big;
	uint32_t task = arbcase_task(s, 5);
	struct arbwaiter w;

	for (int i = 0; i < 2; i++) {
		cr_assert_eq(shmstore_arb_reserve(c.s, PART, 4096, NULL, &own), 0);
		if (i == 0)
			cr_assert_eq(shmstore_arb_release(c.s, &own), 0);
	}
	cr_assert_eq(own.leased, 4096);
	cr_assert_eq(fakearb_used(c.a), 64 * ARB_KIB, "what is unspent is booked too");
	/* All but what was spent. */
	cr_assert_eq(shmstore_arb_bind(s, NULL, task), 0);
	cr_assert_eq(shmstore_arb_reserve(s, PART, ARB_MIB - 4096, NULL, &big), 0);
	cr_assert_eq(fakearb_used(c.a), ARB_MIB);
	/* A request for even that is granted once it is given back: the page says it waits. */
	arbwaiter_start(&w, s, arbcase_task(s, 4), 4096, 0);
	cr_assert(fakearb_waits(c.a, 1));
	cr_assert_eq(shmstore_arb_release(c.s, &own), 0);
	cr_assert_eq(arbwaiter_end(&w, true), 0);
	cr_assert_geq(atomic_load(&c.a->n_ops[WIRE_ARB_LEASE_CALLED]), 1);
	cr_assert_eq(shmstore_arb_release(s, &big), 0);
	cr_assert_eq(shmstore_close(s), 0);
	arbcase_end(&c);
}

Test(arb_reserve, leased_in_part)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 64 * ARB_KIB, 0);
	struct shmstore_arb_reservation r;
	struct wire_lease *l = fakearb_lease(c.a);

	for (int i = 0; i < 2; i++) {
		cr_assert_eq(shmstore_arb_reserve(c.s, PART, 8192, NULL, &r), 0);
		if (i == 0)
			cr_assert_eq(shmstore_arb_release(c.s, &r), 0);
	}
	cr_assert_eq(r.leased, 8192);
	cr_assert_eq(r.id, 0);
	cr_assert_eq(shmstore_arb_resize(c.s, &r, 500 * ARB_KIB, NULL), 0);
	cr_assert_eq(r.leased, 8192);
	cr_assert_neq(r.id, 0);
	cr_assert_eq(fakearb_used(c.a), 64 * ARB_KIB + 500 * ARB_KIB - 8192);
	cr_assert_eq(shmstore_arb_resize(c.s, &r, 499 * ARB_KIB, NULL), 0);
	cr_assert_eq(r.leased, 8192 - 1024, "what costs nothing goes first");
	cr_assert_eq(shmstore_arb_resize(c.s, &r, 100 * ARB_KIB, NULL), 0);
	cr_assert_eq(r.leased, 0);
	cr_assert_eq(atomic_load(&l->charged), 0);
	cr_assert(fakearb_uses(c.a, 164 * ARB_KIB));
	cr_assert_eq(shmstore_arb_release(c.s, &r), 0);
	arbcase_end(&c);
}

Test(arb_reserve, injected_outcomes_see_no_lease)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 64 * ARB_KIB, 0);
	struct shmstore_arb_reservation r;

	for (int i = 0; i < 2; i++) {
		cr_assert_eq(shmstore_arb_reserve(c.s, PART, 100, NULL, &r), 0);
		cr_assert_eq(shmstore_arb_release(c.s, &r), 0);
	}
	cr_assert_eq(shmstore_arb_inject(c.s, NULL, SHMSTORE_ARB_INJECT_TOOBIG, 1, 1, 0), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, 100, NULL, &r), 0);
	cr_assert_neq(r.id, 0);
	cr_assert_eq(shmstore_arb_release(c.s, &r), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, 100, NULL, &r), SHMSTORE_ARB_TOOBIG);
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, 100, NULL, &r), 0);
	cr_assert_neq(r.id, 0, "a context that had one injected asks the daemon");
	cr_assert_eq(shmstore_arb_release(c.s, &r), 0);
	cr_assert_eq(shmstore_arb_inject(c.s, NULL, SHMSTORE_ARB_INJECT_RETRY, 1, 0, 0), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, 100, NULL, &r), SHMSTORE_ARB_RETRY);
	cr_assert_eq(shmstore_arb_ready(c.s, NULL), 0);
	cr_assert_eq(shmstore_arb_inject(c.s, NULL, 9, 1, 0, 0), -EINVAL);
	arbcase_end(&c);
}

Test(arb_reserve, injection_is_not_used_up_by_what_it_cannot_hit)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 64 * ARB_KIB, 0);
	struct shmstore_arb_how now = {.flags = SHMSTORE_ARB_NONBLOCK};
	struct shmstore_arb_reservation r;
	uint32_t pool;

	cr_assert_eq(shmstore_arb_pool_create(c.s, "p", ARB_MIB, 0, &pool), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, 100, NULL, &r), 0);
	cr_assert_eq(r.leased, 100);
	cr_assert_eq(shmstore_arb_release(c.s, &r), 0);
	cr_assert_eq(shmstore_arb_inject(c.s, NULL, SHMSTORE_ARB_INJECT_RETRY, 1, 0, PART), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, 100, &now, &r), 0, "which never waits");
	cr_assert_eq(shmstore_arb_release(c.s, &r), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, pool, 100, NULL, &r), 0, "of another pool");
	cr_assert_eq(shmstore_arb_release(c.s, &r), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, 100, NULL, &r), SHMSTORE_ARB_RETRY);
	cr_assert_eq(shmstore_arb_ready(c.s, NULL), 0);
	/* Two pools' at once. */
	cr_assert_eq(shmstore_arb_inject(c.s, NULL, SHMSTORE_ARB_INJECT_RETRY, 1, 0, pool), 0);
	cr_assert_eq(shmstore_arb_inject(c.s, NULL, SHMSTORE_ARB_INJECT_SPLIT, 1, 0, PART), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, pool, 100, NULL, &r), SHMSTORE_ARB_RETRY);
	cr_assert_eq(shmstore_arb_ready(c.s, NULL), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, 100, NULL, &r), SHMSTORE_ARB_SPLIT);
	cr_assert_eq(shmstore_arb_ready(c.s, NULL), 0);
	arbcase_end(&c);
}

/* ---- event loops ---- */

static bool readable(int fd, int timeout_ms)
{
	return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, timeout_ms) == 1;
}

Test(arb_reserve, event_loop_is_told)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, 0);
	struct shmstore_arb_how how = {.flags = SHMSTORE_ARB_ASYNC};
	struct shmstore_arb_reservation r, mine = {0};
	struct shmstore_arb_context *x[3];
	struct shmstore_arb_done done;
	int fd = shmstore_arb_fd(c.s);
	uint32_t task = arbcase_task(c.s, 5);

	cr_assert_geq(fd, 0);
	cr_assert_eq(shmstore_arb_next(c.s, &done), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, ARB_MIB, NULL, &r), 0);
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(shmstore_arb_context_new(c.s, &x[i]), 0);
		cr_assert_eq(shmstore_arb_bind(c.s, x[i], task), 0);
		how.context = x[i];
		cr_assert_eq(shmstore_arb_reserve(c.s, PART, 1000, &how, &mine),
			     SHMSTORE_ARB_PENDING);
	}
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, 1000, &how, &mine), -EBUSY);
	cr_assert(fakearb_waits(c.a, 3));
	cr_assert_not(readable(fd, 0));
	shmstore_arb_context_free(x[2]); /* with what it waits for */
	cr_assert_eq(shmstore_arb_cancel(c.s, x[1]), 0);
	cr_assert(readable(fd, 10000));
	cr_assert_eq(shmstore_arb_next(c.s, &done), 1);
	cr_assert_eq(done.context, x[1]);
	cr_assert_eq(done.outcome, SHMSTORE_ARB_CANCELED);
	cr_assert_eq(shmstore_arb_next(c.s, &done), 0);
	cr_assert_eq(shmstore_arb_release(c.s, &r), 0);
	cr_assert(readable(fd, 10000));
	cr_assert_eq(shmstore_arb_next(c.s, &done), 1);
	cr_assert_eq(done.context, x[0]);
	cr_assert_eq(done.outcome, 0);
	cr_assert_eq(done.reservation.bytes, 1000);
	cr_assert_not(readable(fd, 0));
	cr_assert_eq(shmstore_arb_fd(c.s), fd);
	cr_assert(fakearb_uses(c.a, 1000));
	cr_assert_eq(shmstore_arb_release(c.s, &done.reservation), 0);
	cr_assert(fakearb_uses(c.a, 0));
	arbcase_end(&c);
}

Test(arb_reserve, event_loop_hears_what_another_thread_read)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, 0);
	struct shmstore_arb_how how = {.flags = SHMSTORE_ARB_ASYNC};
	struct shmstore_arb_reservation r, mine;
	struct shmstore_arb_done done;
	struct arbwaiter w;
	int fd = shmstore_arb_fd(c.s);

	cr_assert_eq(shmstore_arb_context_new(c.s, &how.context), 0);
	cr_assert_eq(shmstore_arb_bind(c.s, how.context, arbcase_task(c.s, 5)), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, ARB_MIB - 10, NULL, &r), 0);
	arbwaiter_start(&w, c.s, arbcase_task(c.s, 4), ARB_MIB, 0);
	cr_assert(fakearb_waits(c.a, 1));
	/* It reads the connection, in its wait. */
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, 10, &how, &mine), SHMSTORE_ARB_PENDING);
	cr_assert(readable(fd, 10000));
	while (shmstore_arb_next(c.s, &done) == 0)
		cr_assert(readable(fd, 10000));
	cr_assert_eq(done.outcome, 0);
	cr_assert_eq(shmstore_arb_release(c.s, &done.reservation), 0);
	cr_assert_eq(shmstore_arb_release(c.s, &r), 0);
	cr_assert_eq(arbwaiter_end(&w, true), 0);
	arbcase_end(&c);
}

Test(arb_reserve, event_loop_hears_the_daemons_end)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, 0);
	struct shmstore_arb_how how = {.flags = SHMSTORE_ARB_ASYNC};
	struct shmstore_arb_reservation r, mine;
	struct shmstore_arb_done done;
	int fd = shmstore_arb_fd(c.s);

	cr_assert_eq(shmstore_arb_context_new(c.s, &how.context), 0);
	cr_assert_eq(shmstore_arb_bind(c.s, how.context, arbcase_task(c.s, 5)), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, ARB_MIB, NULL, &r), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, 10, &how, &mine), SHMSTORE_ARB_PENDING);
	cr_assert(fakearb_waits(c.a, 1));
	fakearb_stop(c.a);
	cr_assert(readable(fd, 10000));
	cr_assert_eq(shmstore_arb_next(c.s, &done), 1);
	cr_assert_eq(done.outcome, SHMSTORE_ARB_DOWN);
	cr_assert_eq(shmstore_close(c.s), 0);
	shmstore_partition_unref(c.p);
}

/* ---- private pools and up-calls ---- */

struct evictor {
	struct shmstore *s;
	struct shmstore_arb_reservation *r;
	size_t n;
	_Atomic unsigned n_called;
	unsigned n_pressed;
	unsigned gives_at, n_last; /* of lies: the call that gives a byte; the last one */
	bool lies;
};

static uint64_t evict(void *ctx, uint32_t pool, uint64_t bytes, uint32_t reservation)
{
	struct evictor *e = ctx;

	(void)pool;
	(void)bytes;
	if (atomic_fetch_add(&e->n_called, 1) + 1 == e->gives_at)
		return 1;
	for (size_t i = 0; !e->lies && i < e->n; i++) {
		uint64_t had = e->r[i].bytes;

		if (e->r[i].id == reservation && had) {
			ENSURE(shmstore_arb_spilled(e->s, &e->r[i], had) == 0);
			return had;
		}
	}
	return 0; /* what somebody else took counts nothing */
}

static void *serve(void *arg)
{
	struct evictor *e = arg;
	int r;

	while ((r = shmstore_arb_serve(e->s, -1)) > 0)
		;
	ENSURE(r == 0 || r == -ENOTSUP);
	return NULL;
}

Test(arb_reserve, evict_gives_what_was_unpinned)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, 0);
	struct shmstore_arb_reservation r[3];
	struct evictor e = {.s = c.s, .r = r, .n = 3};
	struct shmstore_arb_upcalls u = {.evict = evict, .ctx = &e};
	struct shmstore_arb_pool_info info;
	pthread_t thread;
	uint32_t pool;

	cr_assert_eq(shmstore_arb_serve(c.s, 0), -ENOTSUP);
	cr_assert_eq(shmstore_arb_pool_create(c.s, "own", 3000, 0, &pool), 0);
	cr_assert_eq(shmstore_arb_set_upcalls(c.s, &u), 0);
	cr_assert_geq(shmstore_arb_serve_fd(c.s), 0);
	ENSURE(pthread_create(&thread, NULL, serve, &e) == 0);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(shmstore_arb_reserve(c.s, pool, 1500, NULL, &r[i]), 0);
	cr_assert_eq(shmstore_arb_unpin(c.s, &r[0]), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, pool, 1200, NULL, &r[2]), 0, "room was made");
	cr_assert_eq(e.n_called, 1);
	cr_assert_eq(shmstore_arb_pool_info(c.s, pool, &info), 0);
	cr_assert_eq(info.used, 2700);
	cr_assert_eq(info.spilled, 1500);
	/* Back: as soon as there is room for it. */
	cr_assert_eq(shmstore_arb_release(c.s, &r[1]), 0);
	cr_assert_eq(shmstore_arb_pin(c.s, &r[0], NULL), 0);
	cr_assert_eq(shmstore_arb_pool_info(c.s, pool, &info), 0);
	cr_assert_eq(info.spilled, 0);
	cr_assert_eq(info.used, 2700);
	cr_assert_eq(shmstore_arb_set_upcalls(c.s, NULL), 0);
	pthread_join(thread, NULL);
	cr_assert_eq(shmstore_arb_serve_fd(c.s), -ENOTSUP);
	arbcase_end(&c);
}

static bool called_so_often(void *arg)
{
	struct evictor *e = arg;

	return atomic_load(&e->n_called) >= e->n_last;
}

static void expect_calls(unsigned gives_at, unsigned n_calls)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, 0);
	struct shmstore_arb_how soon = {.timeout_ms = 300};
	struct shmstore_arb_reservation r[2];
	struct evictor e = {
		.s = c.s, .r = r, .n = 1, .lies = true, .gives_at = gives_at, .n_last = n_calls};
	struct shmstore_arb_upcalls u = {.evict = evict, .ctx = &e};
	pthread_t thread;
	uint32_t pool;

	cr_assert_eq(shmstore_arb_pool_create(c.s, "own", 3000, 0, &pool), 0);
	cr_assert_eq(shmstore_arb_set_upcalls(c.s, &u), 0);
	ENSURE(pthread_create(&thread, NULL, serve, &e) == 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, pool, 3000, NULL, &r[0]), 0);
	cr_assert_eq(shmstore_arb_unpin(c.s, &r[0]), 0);
	somebody_runs(c.s);
	cr_assert_eq(shmstore_arb_reserve(c.s, pool, 1000, &soon, &r[1]), SHMSTORE_ARB_TIMEDOUT);
	/* By a thread that may run later than that. */
	cr_assert(wait_until(called_so_often, &e, 10000));
	cr_assert_eq(shmstore_arb_set_upcalls(c.s, NULL), 0);
	pthread_join(thread, NULL);
	cr_assert_eq(e.n_called, n_calls);
	arbcase_end(&c);
}

Test(arb_reserve, evict_that_gives_nothing_is_asked_thrice)
{
	expect_calls(0, 3);
}

Test(arb_reserve, evict_that_gave_something_is_asked_thrice_again)
{
	expect_calls(2, 5);
}
