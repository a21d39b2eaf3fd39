/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbiter.c: six threads, each for a task of its own, reserve from a pool that has room for two of
 * them: out of leases and by round trips, in attempts that are rolled back and split. They put what
 * they reserved, and give each other reservations to release; a seventh waits for three contexts in
 * an event loop. Meanwhile the pool's size changes, others' memory goes, waits are canceled, and
 * everything is looked at. Every call ends with an outcome that it may; in the end nothing is
 * booked. Plain main(): runs under TSan too.
 *
 *   arbiter [rounds]
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "api.h"
#include "arbcase.h"

#define PART       SHMSTORE_ARB_PARTITION
#define TIMEOUT_MS 2000u

enum {
	THREADS = 6,
	ASYNC = 3,
	LEAST = 20000 /* bytes of a piece that is not split */
};

struct worker {
	unsigned number;
	uint32_t task;
	struct shmstore_arb_context *context; /* NULL: the thread's own one */
	uint64_t n_attempts, n_splits;
};

struct piece {
	uint64_t bytes;
};

static struct arbcase world;
static unsigned rounds = 100;
static _Atomic unsigned n_running = THREADS + 1, n_done, n_failed, n_async, n_handed;

/* Reservations that are given from one thread to another. */
static pthread_mutex_t given_lock = PTHREAD_MUTEX_INITIALIZER;
static struct shmstore_arb_reservation given;

/* The results that any call may have here. */
static bool may_be(int r)
{
	return r == 0 || r == SHMSTORE_ARB_RETRY || r == SHMSTORE_ARB_SPLIT ||
	       r == SHMSTORE_ARB_TIMEDOUT || r == SHMSTORE_ARB_CANCELED || r == SHMSTORE_ARB_TOOBIG;
}

static int must(int r)
{
	if (!may_be(r))
		fprintf(stderr, "%d %s\n", r, shmstore_arb_why());
	ENSURE(may_be(r));
	return r;
}

static void release(struct shmstore_arb_reservation *r)
{
	ENSURE(shmstore_arb_release(world.s, r) == 0);
}

/* Gives r to whoever comes next, and releases what it gets for it. */
static void exchange(struct shmstore_arb_reservation *r)
{
	struct shmstore_arb_reservation got;

	pthread_mutex_lock(&given_lock);
	got = given;
	given = *r;
	pthread_mutex_unlock(&given_lock);
	if (got.bytes)
		n_handed++;
	release(&got);
}

/* ---- attempts ---- */

static int put_some(const struct worker *w, struct shmstore_arb_reservation *r)
{
	char key[16];
	int result;

	snprintf(key, sizeof(key), "%u", w->number);
	if (w->number % 2)
		ENSURE(shmstore_arb_spend(world.s, r) == 0);
	result = must(put_pattern(world.s, key, 3000, w->number, 0));
	ENSURE(shmstore_arb_spend(world.s, NULL) == 0);
	if (result == 0) {
		ENSURE(get_pattern(world.s, key, 3000, w->number) == 0);
		ENSURE(shmstore_delete(world.s, KEY(key)) == 0);
	}
	return result;
}

static int attempt(void *ctx, void *item)
{
	const struct shmstore_arb_how how = {.timeout_ms = TIMEOUT_MS};
	const struct worker *w = ctx;
	const struct piece *p = item;
	struct shmstore_arb_reservation r[3];
	int result = must(shmstore_arb_reserve(world.s, PART, p->bytes / 2, &how, &r[0]));

	/* The caller releases earlier reservations when a later call fails. */
	if (result == 0)
		result = must(shmstore_arb_reserve(world.s, PART, 5000, &how, &r[1]));
	if (result == 0)
		result = must(shmstore_arb_reserve(world.s, PART, p->bytes / 4, &how, &r[2]));
	if (result == 0)
		result = must(shmstore_arb_resize(world.s, &r[2], p->bytes / 2, &how));
	if (result == 0)
		result = put_some(w, &r[1]);
	if (result != 0)
		return result;
	release(&r[0]);
	release(&r[1]);
	exchange(&r[2]);
	return 0;
}

static int split(void *ctx, void *item, void **ret, size_t max)
{
	struct piece *p = item;

	(void)ctx;
	(void)max;
	if (p->bytes < 2 * LEAST)
		return 0;
	for (int i = 0; i < 2; i++) {
		struct piece *half = malloc(sizeof(*half));

		ENSURE(half);
		half->bytes = p->bytes / 2;
		ret[i] = half;
	}
	free(p);
	return 2;
}

static void done(void *ctx, void *item, int result)
{
	(void)ctx;
	free(item);
	result == 0 ? n_done++ : n_failed++;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct shmstore_arb_work job = {.size = sizeof(job),
					.how = {.context = w->context, .timeout_ms = TIMEOUT_MS},
					.attempt = attempt,
					.split = split,
					.done = done,
					.ctx = w};

	ENSURE(shmstore_arb_bind(world.s, w->context, w->task) == 0);
	for (unsigned i = 0; i < rounds; i++) {
		struct piece *p = malloc(sizeof(*p));
		void *items[1] = {p};

		ENSURE(p);
		p->bytes = LEAST + (uint64_t)(i * 2654435761u >> 8) % 1300000;
		if (i % 8 == w->number)
			ENSURE(shmstore_arb_inject(world.s, w->context, SHMSTORE_ARB_INJECT_RETRY,
						   1, i % 3, 0) == 0);
		must(shmstore_arb_with_retry(world.s, items, 1, &job));
		w->n_attempts += job.n_attempts;
		w->n_splits += job.n_splits;
	}
	/* A thread that does nothing more must not look like one that runs. */
	ENSURE(shmstore_arb_unbind(world.s, w->context, NULL, 0) == 0);
	n_running--;
	return NULL;
}

/* ---- an event loop ---- */

static struct shmstore_arb_context *async[ASYNC];

/* Begins calls of the context until one is under way. */
static void begin_async(struct shmstore_arb_context *c, unsigned turn)
{
	struct shmstore_arb_how how = {
		.context = c, .flags = SHMSTORE_ARB_ASYNC, .timeout_ms = TIMEOUT_MS};
	struct shmstore_arb_reservation r;
	int result;

	for (;;) {
		result =
			shmstore_arb_reserve(world.s, PART, 1000 + turn * 7919u % 200000, &how, &r);
		if (result == SHMSTORE_ARB_PENDING)
			return;
		must(result);
		n_async++;
		turn++;
		if (result == 0)
			release(&r);
	}
}

static void *loop(void *arg)
{
	struct shmstore_arb_done d;
	int fd = shmstore_arb_fd(world.s), n_pending = ASYNC, result;
	unsigned n = 0;

	(void)arg;
	ENSURE(fd >= 0);
	for (int i = 0; i < ASYNC; i++)
		begin_async(async[i], 1u + (unsigned)i);
	while (n_pending) {
		struct shmstore_arb_how how = {.flags = SHMSTORE_ARB_ASYNC,
					       .timeout_ms = TIMEOUT_MS};

		poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 100);
		while ((result = shmstore_arb_next(world.s, &d)) == 1) {
			must(d.outcome);
			n_async++;
			if (d.reservation.bytes)
				release(&d.reservation);
			how.context = d.context;
			if (d.outcome == SHMSTORE_ARB_RETRY)
				ENSURE(shmstore_arb_ready(world.s, &how) == SHMSTORE_ARB_PENDING);
			else if (++n < 4 * rounds)
				begin_async(d.context, n);
			else
				n_pending -= shmstore_arb_unbind(world.s, d.context, NULL, 0) == 0;
		}
		ENSURE(result == 0);
	}
	n_running--;
	return NULL;
}

/* ---- all that happens meanwhile ---- */

static void disturb(unsigned turn, const struct worker *w)
{
	struct shmstore_arb_info info;
	struct shmstore_arb_stats stats;
	struct shmstore_arb_pool_info pool;

	fakearb_resize(world.a, ARB_MIB - turn % 3 * 100 * ARB_KIB);
	atomic_store(&world.a->freed, UINT64_MAX);
	atomic_store(&fakearb_lease(world.a)->wanted, turn / 4 % 2);
	if (turn % 5 == 0)
		ENSURE(shmstore_arb_cancel(world.s, async[turn % ASYNC]) == 0);
	if (turn % 7 == 0 && w->context)
		ENSURE(shmstore_arb_cancel(world.s, w->context) == 0);
	if (w->context)
		ENSURE(shmstore_arb_state(world.s, w->context, &info) == 0);
	ENSURE(shmstore_arb_stats(world.s, w->task, 0, false, &stats) == 0);
	ENSURE(shmstore_arb_pool_info(world.s, PART, &pool) == 0);
}

int main(int argc, char **argv)
{
	struct worker workers[THREADS];
	pthread_t threads[THREADS + 1];
	uint64_t n_attempts = 0, n_splits = 0;

	if (argc > 1)
		rounds = (unsigned)atoi(argv[1]);
	world = arbcase_begin(ARB_MIB, 64 * ARB_KIB, SHMSTORE_OPEN_ARBITRATE);
	for (unsigned i = 0; i < THREADS; i++) {
		workers[i] =
			(struct worker){.number = i, .task = arbcase_task(world.s, (int64_t)i)};
		if (i >= THREADS / 2)
			ENSURE(shmstore_arb_context_new(world.s, &workers[i].context) == 0);
	}
	for (int i = 0; i < ASYNC; i++) {
		ENSURE(shmstore_arb_context_new(world.s, &async[i]) == 0);
		ENSURE(shmstore_arb_bind(world.s, async[i], arbcase_task(world.s, 10 + i)) == 0);
	}
	ENSURE(shmstore_arb_unbind(world.s, NULL, NULL, 0) == 0);
	for (unsigned i = 0; i < THREADS; i++)
		ENSURE(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
	ENSURE(pthread_create(&threads[THREADS], NULL, loop, NULL) == 0);
	for (unsigned turn = 0; n_running; turn++) {
		disturb(turn, &workers[turn % THREADS]);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	for (unsigned i = 0; i <= THREADS; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < THREADS; i++) {
		n_attempts += workers[i].n_attempts;
		n_splits += workers[i].n_splits;
		workers[i].context = shmstore_arb_context_free(workers[i].context);
	}
	release(&given);
	ENSURE(n_done > 0 && n_async >= 4 * rounds);
	ENSURE(n_attempts > (uint64_t)THREADS * rounds);
	printf("%u pieces done, %u not, in %" PRIu64 " attempts, %" PRIu64
	       " splits; %u handed over; %u calls in the loop\n",
	       n_done, n_failed, n_attempts, n_splits, n_handed, n_async);
	/* All tasks go with the store: nothing of theirs is booked then. */
	arbcase_end(&world);
	return 0;
}
