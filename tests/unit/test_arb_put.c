/* SPDX-License-Identifier: Apache-2.0 */
/* Put, create, adopt and promote in a store that arbitrates: bytes are reserved before memory is
 * taken, reported after it, and given back where none was taken. */
#include <criterion/criterion.h>
#include <errno.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "api.h"
#include "arbcase.h"
#include "interpose.h"
#include "tiered.h"

#define PART SHMSTORE_ARB_PARTITION

enum {
	SIZE = 100000,
	BLOCKS = 106496 /* with header, in pages */
};

static struct arbcase begin(uint64_t capacity, uint64_t lease)
{
	return arbcase_begin(capacity, lease, SHMSTORE_OPEN_ARBITRATE);
}

static uint64_t n_op(const struct arbcase *c, enum wire_arb_op op)
{
	return atomic_load(&c->a->n_ops[op]);
}

Test(arb_put, is_reserved_and_becomes_an_object)
{
	struct arbcase c = begin(ARB_MIB, 0);

	cr_assert_eq(put_pattern(c.s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(get_pattern(c.s, "k", SIZE, 1), 0);
	cr_assert(fakearb_settled(c.a, false));
	cr_assert_eq(fakearb_objects(c.a), BLOCKS);
	cr_assert_eq(n_op(&c, WIRE_ARB_RESERVE), 1);
	arbcase_end(&c);
}

Test(arb_put, small_one_costs_no_round_trip)
{
	struct arbcase c = begin(ARB_MIB, 512 * ARB_KIB);
	struct wire_lease *l = fakearb_lease(c.a);

	for (int i = 0; i < 4; i++)
		cr_assert_eq(put_pattern(c.s, "k", SIZE, 1, SHMSTORE_REPLACE), 0);
	cr_assert_eq(n_op(&c, WIRE_ARB_RESERVE), 0);
	cr_assert_eq(n_op(&c, WIRE_ARB_LEASE), 1);
	cr_assert_eq(atomic_load(&l->charged), atomic_load(&l->settled));
	cr_assert_geq(atomic_load(&l->settled), BLOCKS);
	arbcase_end(&c);
}

Test(arb_put, unbound_thread_does_as_ever)
{
	struct arbcase c = begin(ARB_MIB, 0);

	cr_assert_eq(shmstore_arb_unbind(c.s, NULL, NULL, 0), 0);
	cr_assert_eq(put_pattern(c.s, "k", 2 * ARB_MIB, 1, 0), 0);
	cr_assert_eq(n_op(&c, WIRE_ARB_RESERVE), 0);
	arbcase_end(&c);
}

Test(arb_put, store_that_does_not_arbitrate_does_as_ever)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, 0);

	cr_assert_eq(put_pattern(c.s, "k", 2 * ARB_MIB, 1, 0), 0);
	cr_assert_eq(n_op(&c, WIRE_ARB_RESERVE), 0);
	arbcase_end(&c);
}

Test(arb_put, outcomes_are_returned)
{
	struct arbcase c = begin(ARB_MIB, 0);
	struct shmstore_writer *w = NULL;
	uint64_t size = 2 * ARB_MIB;

	cr_assert_eq(put_pattern(c.s, "k", 2 * ARB_MIB, 1, 0), SHMSTORE_ARB_TOOBIG);
	cr_assert_eq(shmstore_create(c.s, KEY("k"), 0, &size, 1, 0, &w), SHMSTORE_ARB_TOOBIG);
	cr_assert_null(w);
	cr_assert_eq(shmstore_arb_inject(c.s, NULL, SHMSTORE_ARB_INJECT_RETRY, 1, 0, 0), 0);
	cr_assert_eq(put_pattern(c.s, "k", SIZE, 1, 0), SHMSTORE_ARB_RETRY);
	cr_assert_eq(count_objects(c.s), 0);
	cr_assert_eq(shmstore_arb_ready(c.s, NULL), 0);
	cr_assert_eq(put_pattern(c.s, "k", SIZE, 1, 0), 0);
	arbcase_end(&c);
}

struct putter {
	struct arbcase *c;
	uint32_t task;
	int result;
};

static void *put_in_thread(void *arg)
{
	struct putter *p = arg;

	ENSURE(shmstore_arb_bind(p->c->s, NULL, p->task) == 0);
	p->result = put_pattern(p->c->s, "late", SIZE, 2, 0);
	return NULL;
}

Test(arb_put, waits_for_a_delete)
{
	struct arbcase c = begin(2 * BLOCKS, 0);
	struct putter p = {&c, arbcase_task(c.s, 5), -1};
	pthread_t thread;

	cr_assert_eq(put_pattern(c.s, "1", SIZE, 1, 0), 0);
	cr_assert_eq(put_pattern(c.s, "2", SIZE, 1, 0), 0);
	cr_assert(fakearb_settled(c.a, false));
	ENSURE(pthread_create(&thread, NULL, put_in_thread, &p) == 0);
	cr_assert(fakearb_waits(c.a, 1));
	/* The page says that somebody waits: whoever deletes tells the daemon, and
	 * keeps no file in the pool. */
	atomic_store(&fakearb_lease(c.a)->wanted, 1);
	atomic_store(&c.a->freed, BLOCKS);
	cr_assert_eq(shmstore_delete(c.s, KEY("1")), 0);
	pthread_join(thread, NULL);
	cr_assert_eq(p.result, 0);
	cr_assert_eq(n_op(&c, WIRE_ARB_FREED), 1);
	cr_assert_eq(count_in_store("a", "recycle"), 0);
	atomic_store(&fakearb_lease(c.a)->wanted, 0);
	arbcase_end(&c);
}

Test(arb_put, recycled_file_takes_nothing)
{
	struct arbcase c = begin(ARB_MIB, 0);

	cr_assert_eq(put_pattern(c.s, "1", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_delete(c.s, KEY("1")), 0);
	cr_assert_eq(put_pattern(c.s, "2", SIZE, 1, 0), 0);
	cr_assert_eq(n_op(&c, WIRE_ARB_RESERVE), 1);
	arbcase_end(&c);
}

Test(arb_put, own_pool_goes_before_a_wait)
{
	struct arbcase c = begin(2 * BLOCKS, 0);

	cr_assert_eq(put_pattern(c.s, "1", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_delete(c.s, KEY("1")), 0);
	cr_assert_eq(count_in_store("a", "recycle"), 1);
	cr_assert(fakearb_settled(c.a, false));
	atomic_store(&fakearb_lease(c.a)->wanted, 1);
	atomic_store(&c.a->freed, BLOCKS);
	/* Too large for the pooled file, and there is not enough room beside it. */
	cr_assert_eq(put_pattern(c.s, "2", 2 * BLOCKS - 8192, 1, 0), 0);
	cr_assert_eq(count_in_store("a", "recycle"), 0);
	atomic_store(&fakearb_lease(c.a)->wanted, 0);
	arbcase_end(&c);
}

Test(arb_put, writer_holds_what_it_reserved_until_it_is_sealed)
{
	struct arbcase c = begin(ARB_MIB, 0);
	struct shmstore_writer *w;
	uint64_t size = SIZE;

	cr_assert_eq(shmstore_create(c.s, KEY("k"), 0, &size, 1, 0, &w), 0);
	cr_assert_eq(fakearb_used(c.a), BLOCKS);
	cr_assert_eq(fakearb_objects(c.a), 0);
	cr_assert_eq(shmstore_seal(w), 0);
	cr_assert(fakearb_settled(c.a, false));
	cr_assert_eq(fakearb_objects(c.a), BLOCKS);
	cr_assert_eq(shmstore_create(c.s, KEY("k"), 0, &size, 1, 0, &w), 0);
	shmstore_abort(w);
	cr_assert(fakearb_uses(c.a, BLOCKS));
	/* A key that is held is found out when it is sealed. */
	cr_assert_eq(shmstore_create(c.s, KEY("k"), 0, &size, 1, 0, &w), 0);
	cr_assert_eq(shmstore_seal(w), -EEXIST);
	cr_assert(fakearb_uses(c.a, BLOCKS));
	arbcase_end(&c);
}

Test(arb_put, what_fails_is_given_back)
{
	struct arbcase c = begin(ARB_MIB, 512 * ARB_KIB);
	struct wire_lease *l = fakearb_lease(c.a);

	cr_assert_eq(put_pattern(c.s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(put_pattern(c.s, "k", SIZE, 1, 0), -EEXIST);
	cr_assert_eq(atomic_load(&l->charged), atomic_load(&l->settled));
	cr_assert_eq(put_pattern(c.s, "k", 300 * ARB_KIB, 1, 0), -EEXIST);
	cr_assert(fakearb_uses(c.a, 512 * ARB_KIB - BLOCKS));
	arbcase_end(&c);
}

Test(arb_put, comes_out_of_what_is_spent)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, 0);
	struct shmstore_arb_reservation r;

	cr_assert_eq(shmstore_arb_reserve(c.s, PART, 3 * BLOCKS, NULL, &r), 0);
	cr_assert_eq(shmstore_arb_spend(c.s, &r), 0);
	cr_assert_eq(put_pattern(c.s, "1", SIZE, 1, 0), 0);
	cr_assert_eq(r.bytes, 2 * BLOCKS);
	cr_assert_eq(seal_pattern(c.s, "2", SIZE, 1, 0), 0);
	cr_assert_eq(r.bytes, BLOCKS);
	cr_assert_eq(put_pattern(c.s, "2", SIZE, 1, 0), -EEXIST);
	cr_assert_eq(r.bytes, BLOCKS, "nothing was written");
	cr_assert_eq(n_op(&c, WIRE_ARB_RESERVE), 1);
	cr_assert(fakearb_uses(c.a, BLOCKS));
	cr_assert_eq(put_pattern(c.s, "3", SIZE, 1, 0), 0);
	cr_assert_eq(r.bytes, 0);
	cr_assert_eq(r.id, 0);
	cr_assert(fakearb_settled(c.a, false));
	cr_assert_eq(put_pattern(c.s, "4", SIZE, 1, 0), 0,
		     "a store that does not arbitrate goes on without");
	cr_assert_eq(shmstore_arb_spend(c.s, NULL), 0);
	r.pool = 2;
	cr_assert_eq(shmstore_arb_spend(c.s, &r), -EINVAL);
	arbcase_end(&c);
}

Test(arb_put, spends_more_than_there_is_by_reserving_the_rest)
{
	struct arbcase c = begin(ARB_MIB, 0);
	struct shmstore_arb_reservation r;

	cr_assert_eq(shmstore_arb_reserve(c.s, PART, 1000, NULL, &r), 0);
	cr_assert_eq(shmstore_arb_spend(c.s, &r), 0);
	cr_assert_eq(put_pattern(c.s, "1", SIZE, 1, 0), 0);
	cr_assert_eq(r.bytes, 0);
	cr_assert(fakearb_settled(c.a, false));
	cr_assert_eq(n_op(&c, WIRE_ARB_RESIZE), 1);
	cr_assert_eq(shmstore_arb_spend(c.s, NULL), 0);
	arbcase_end(&c);
}

/* ---- the kernel has less than was granted ---- */

typedef ssize_t pwritev_fn(int fd, const struct iovec *iov, int n, off_t at);

static int refuse;       /* writes that fail still */
static int n_rests;      /* times that was waited for others' memory to go */
static uint64_t rest_ns; /* in all */

ssize_t pwritev(int fd, const struct iovec *iov, int n, off_t at)
{
	if (refuse > 0) {
		refuse--;
		errno = ENOSPC;
		return -1;
	}
	return NEXT(pwritev_fn *, "pwritev")(fd, iov, n, at);
}

/* Nobody's memory goes meanwhile: what the library would wait is counted. The test's
 * own threads wait as ever. */
int nanosleep(const struct timespec *t, struct timespec *ret_left)
{
	typedef int nanosleep_fn(const struct timespec *t, struct timespec *ret_left);

	if (!refuse)
		return NEXT(nanosleep_fn *, "nanosleep")(t, ret_left);
	n_rests++;
	rest_ns += (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
	return 0;
}

Test(arb_put, enospc_after_a_grant_is_another_try)
{
	struct arbcase c = begin(ARB_MIB, 512 * ARB_KIB);
	struct wire_lease *l = fakearb_lease(c.a);

	/* Beside what the store tries by itself: its pool, dead stores. */
	refuse = 4;
	cr_assert_eq(put_pattern(c.s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(refuse, 0);
	cr_assert_geq(n_op(&c, WIRE_ARB_RESERVE), 1, "then the daemon is asked, not the lease");
	cr_assert(fakearb_settled(c.a, true));
	cr_assert_eq(atomic_load(&l->charged), atomic_load(&l->settled));
	refuse = 1000;
	cr_assert_eq(put_pattern(c.s, "l", SIZE, 1, 0), -ENOSPC, "not for ever");
	cr_assert_lt(refuse, 1000 - 8);
	refuse = 0;
	cr_assert_geq(n_rests, 8);
	cr_assert_geq(rest_ns, 1000000000u, "a second at least: what was granted is to come");
	cr_assert_leq(rest_ns, 2000000000u);
	arbcase_end(&c);
}

/* ---- promotion ---- */

Test(arb_put, promotion_reserves)
{
	struct shmstore_view *v;

	TIERED_OR_SKIP();
	struct arbcase c = begin(ARB_MIB, 0);

	cr_assert_eq(put_pattern(c.s, "k", SIZE, 1, 0), 0);
	cr_assert(fakearb_settled(c.a, false));
	cr_assert_eq(shmstore_demote(c.s, KEY("k"), 0), 0);
	fakearb_resize(c.a, BLOCKS + 1000);
	cr_assert_eq(shmstore_arb_inject(c.s, NULL, SHMSTORE_ARB_INJECT_RETRY, 1, 0, 0), 0);
	cr_assert_eq(shmstore_promote(c.s, KEY("k"), 0), SHMSTORE_ARB_RETRY);
	cr_assert_eq(shmstore_locate(c.s, KEY("k")), SHMSTORE_IN_TIER);
	cr_assert_eq(shmstore_arb_ready(c.s, NULL), 0);
	/* As the fake counts, the demoted object is there still: no room, so the tier's file is
	 * read where it is, or else it waits. */
	atomic_store(&c.a->freed, BLOCKS);
	fakearb_resize(c.a, ARB_MIB);
	cr_assert_eq(shmstore_promote(c.s, KEY("k"), 0), 0);
	cr_assert_eq(shmstore_locate(c.s, KEY("k")), SHMSTORE_IN_MEMORY);
	cr_assert(fakearb_settled(c.a, false));
	cr_assert_eq(fakearb_objects(c.a), 2 * BLOCKS);
	cr_assert_eq(shmstore_demote(c.s, KEY("k"), 0), 0);
	cr_assert_eq(shmstore_get(c.s, KEY("k"), 0, &v), 0);
	cr_assert_eq(view_pattern(v, SIZE, 1), 0);
	shmstore_view_unref(v);
	cr_assert(fakearb_settled(c.a, false));
	arbcase_end(&c);
}

Test(arb_put, get_returns_outcomes_too)
{
	static unsigned char zeros[SIZE];
	struct iovec buffer = {zeros, sizeof(zeros)};
	struct shmstore_view *v = NULL;

	TIERED_OR_SKIP();
	struct arbcase c = begin(ARB_MIB, 0);

	cr_assert_eq(put_pattern(c.s, "k", SIZE, 1, 0), 0);
	cr_assert(fakearb_settled(c.a, false));
	cr_assert_eq(shmstore_demote(c.s, KEY("k"), 0), 0);
	cr_assert_eq(shmstore_put(c.s, KEY("z"), NULL, 0, &buffer, 1, 0), 0);
	cr_assert(fakearb_settled(c.a, false));
	cr_assert_eq(shmstore_demote(c.s, KEY("z"), 0), 0);
	fakearb_resize(c.a, BLOCKS / 2);
	/* An object that is compressed on disk cannot be read there: it needs the room. */
	cr_assert_eq(shmstore_arb_inject(c.s, NULL, SHMSTORE_ARB_INJECT_RETRY, 1, 0, 0), 0);
	cr_assert_eq(shmstore_get(c.s, KEY("z"), 0, &v), SHMSTORE_ARB_RETRY);
	cr_assert_eq(shmstore_arb_ready(c.s, NULL), 0);
	cr_assert_eq(shmstore_get(c.s, KEY("z"), 0, &v), SHMSTORE_ARB_TOOBIG);
	cr_assert_null(v);
	cr_assert_eq(shmstore_get(c.s, KEY("k"), 0, &v), 0);
	cr_assert_eq(view_pattern(v, SIZE, 1), 0);
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_locate(c.s, KEY("k")), SHMSTORE_IN_TIER,
		     "what lies there as it is, is mapped there");
	fakearb_resize(c.a, ARB_MIB);
	cr_assert_eq(shmstore_get(c.s, KEY("z"), 0, &v), 0);
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_locate(c.s, KEY("z")), SHMSTORE_IN_MEMORY);
	arbcase_end(&c);
}

/* ---- packed objects ---- */

static struct arbcase begin_packing(uint64_t capacity, uint64_t lease)
{
	struct arbcase c;

	arbcase_pack_max = 200 * ARB_KIB;
	c = begin(capacity, lease);
	arbcase_pack_max = 0;
	return c;
}

static int count_packed(const struct shmstore_object_info *info, void *arg)
{
	*(unsigned *)arg += info->packed;
	return 0;
}

static unsigned n_packed(const struct arbcase *c)
{
	unsigned n = 0;

	cr_assert_eq(shmstore_foreach(c->s, count_packed, &n), 0);
	return n;
}

/* The growth of a segment is reserved; objects that are put there are not reserved again. */
Test(arb_put, segment_is_reserved_as_it_grows)
{
	struct arbcase c = begin_packing(8 * ARB_MIB, 0);
	uint64_t n, objects;
	char key[8];

	for (unsigned i = 0; i < 100; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		cr_assert_eq(put_pattern(c.s, key, 1000, i, 0), 0);
	}
	cr_assert_eq(n_packed(&c), 100);
	cr_assert(fakearb_settled(c.a, false));
	objects = fakearb_objects(c.a);
	cr_assert_geq(objects, 100 * 1000);
	n = n_op(&c, WIRE_ARB_RESERVE);
	for (unsigned i = 0; i < 100; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		cr_assert_eq(put_pattern(c.s, key, 1000, i, SHMSTORE_REPLACE), 0);
	}
	cr_assert_leq(fakearb_objects(c.a), objects + 4096, "one more than there are");
	cr_assert_leq(n_op(&c, WIRE_ARB_RESERVE), n + 1);
	arbcase_end(&c);
}

/* A segment that may not grow is no reason to wait: a file takes less. */
Test(arb_put, segment_is_not_waited_for)
{
	struct arbcase c = begin_packing(ARB_MIB, 0);
	struct shmstore_arb_reservation r;

	cr_assert_eq(shmstore_arb_reserve(c.s, PART, ARB_MIB - 10 * ARB_KIB, NULL, &r), 0);
	cr_assert_eq(put_pattern(c.s, "k", 1000, 1, 0), 0);
	cr_assert_eq(n_packed(&c), 0);
	cr_assert_eq(shmstore_arb_release(c.s, &r), 0);
	cr_assert_eq(put_pattern(c.s, "l", 1000, 1, 0), 0);
	cr_assert_eq(n_packed(&c), 1);
	arbcase_end(&c);
}

/* The pool of segments goes before a wait, as that of files. */
Test(arb_put, pool_of_segments_goes_before_a_wait)
{
	struct arbcase c = begin_packing(3 * ARB_MIB, 0);
	uint64_t taken;
	char key[8];

	for (unsigned i = 0; i < 15; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		cr_assert_eq(put_pattern(c.s, key, SIZE, i, 0), 0);
	}
	cr_assert_eq(n_packed(&c), 15);
	cr_assert(fakearb_settled(c.a, false));
	taken = fakearb_objects(c.a);
	cr_assert_gt(taken, 1300 * ARB_KIB);
	for (unsigned i = 0; i < 15; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		cr_assert_eq(shmstore_delete(c.s, KEY(key)), 0);
	}
	atomic_store(&fakearb_lease(c.a)->wanted, 1);
	atomic_store(&c.a->freed, taken);
	cr_assert_eq(put_pattern(c.s, "large", 3 * ARB_MIB - 300 * ARB_KIB, 1, 0), 0);
	atomic_store(&fakearb_lease(c.a)->wanted, 0);
	arbcase_end(&c);
}
