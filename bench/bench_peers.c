/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_peers.c: how do others do it, on this machine, in this run?
 *
 * The same cycle for all: the producer puts bytes from private memory and sends a message,
 * the consumer gets them, reads a byte of each page, lets go and answers, the producer drops
 * the object. Also put and drop alone, without a consumer; and, of peers that know objects
 * by key, while 10,000 stand: one more is put, and the oldest goes. All processes (a
 * server's too) share ONE CPU, so that wake-ups of a sleeping one do not hide the work. The
 * peers take turns in each round.
 */
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "measure.h"
#include "peer.h"
#include "peer_python.h"
#include "report.h"

#define KIB         ((size_t)1024)
#define MIB         (1024 * KIB)
#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

#define STANDING     10000u
#define STANDING_MAX (4 * KIB) /* bytes of one of them */

struct entrant {
	const struct peer *peer; /* NULL: Python */
	const char *name;
	struct peer_run run;
	struct exchange exchange;
	struct peer_message message;
	struct peer_python python;
	const void *data;
	size_t size;
	uint64_t all_ns, put_ns;
	unsigned n_put; /* objects by key so far */
	bool ready;
};

/* ---- running --------------------------------------------------------------------------------- */

static int put(struct entrant *e, peer_put *how)
{
	uint64_t t0 = measure_now_ns();
	int r;

	e->message.size = 0;
	e->message.fd = -1;
	r = how(&e->run, e->data, e->size, &e->message);
	e->put_ns = measure_now_ns() - t0;
	return r;
}

static int run_cycle(void *arg)
{
	struct entrant *e = arg;
	uint64_t t0 = measure_now_ns();
	int r;

	if (!e->peer)
		return peer_python_run(&e->python, "cycle", e->size, &e->all_ns, &e->put_ns);
	r = put(e, e->peer->put);
	if (r == 0)
		r = exchange_call(&e->exchange, e->message.bytes, e->message.size, e->message.fd);
	if (r == 0)
		r = e->peer->drop(&e->run);
	e->all_ns = measure_now_ns() - t0;
	return r;
}

static int run_put(void *arg)
{
	struct entrant *e = arg;
	uint64_t t0 = measure_now_ns();
	int r;

	if (!e->peer)
		return peer_python_run(&e->python, "put", e->size, &e->all_ns, &e->put_ns);
	r = put(e, e->peer->put_only ? e->peer->put_only : e->peer->put);
	if (r == 0)
		r = e->peer->drop(&e->run);
	e->all_ns = measure_now_ns() - t0;
	return r;
}

static int put_one_more(struct entrant *e)
{
	return e->peer->put_at(&e->run, e->n_put++, e->data, e->size);
}

static int run_turn(void *arg)
{
	struct entrant *e = arg;
	uint64_t t0 = measure_now_ns();
	int r = put_one_more(e);

	e->put_ns = measure_now_ns() - t0;
	if (r == 0)
		r = e->peer->delete_at(&e->run, e->n_put - 1 - STANDING);
	e->all_ns = measure_now_ns() - t0;
	return r;
}

static void report_series(struct report *report, struct contender *c, size_t n, size_t size,
			  bool inner)
{
	for (size_t i = 0; i < n; i++)
		report_row(report, "one CPU", c[i].operation, c[i].variant, size, &c[i].series);
	for (size_t i = 0; i < n && inner; i++)
		report_row(report, "one CPU", "put", c[i].variant, size, &c[i].inner);
	for (size_t i = 0; i < n; i++) {
		measure_deinit(&c[i].series);
		measure_deinit(&c[i].inner);
	}
}

static void bench_standing(struct report *report, const struct report_options *options,
			   struct entrant *entrants, size_t n, size_t size)
{
	struct contender c[16] = {0};
	const struct contender *failed = NULL;
	size_t n_c = 0;
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		struct entrant *e = &entrants[i];

		if (!e->ready || !e->peer || !e->peer->put_at)
			continue;
		e->size = size;
		e->n_put = 0;
		while (r == 0 && e->n_put < STANDING)
			r = put_one_more(e);
		c[n_c++] = (struct contender){.operation = "put+drop, 10,000 stand",
					      .variant = e->name,
					      .run = run_turn,
					      .own_ns = &e->all_ns,
					      .inner_ns = &e->put_ns,
					      .arg = e};
	}
	if (r == 0)
		r = measure_contenders(c, n_c, options->rounds, 100, 10, &failed);
	for (size_t i = 0; i < n_c && r == 0; i++) {
		struct entrant *e = c[i].arg;

		for (unsigned k = 1; k <= STANDING && r == 0; k++)
			r = e->peer->delete_at(&e->run, e->n_put - k);
	}
	if (r < 0)
		errx(1, "%s, %zu bytes, %u stand: %s", failed ? failed->variant : "filling", size,
		     STANDING, strerror(-r));
	report_series(report, c, n_c, size, false);
}

static void bench_size(struct report *report, const struct report_options *options,
		       struct entrant *entrants, size_t n, size_t size, bool cycle)
{
	struct contender c[16] = {0};
	const struct contender *failed = NULL;
	size_t n_ops = size <= 64 * KIB ? 100 : size <= MIB ? 30 : 2, n_c = 0;
	size_t rounds = size > MIB && options->rounds > 7 ? 7 : options->rounds;
	int r;

	for (size_t i = 0; i < n; i++) {
		struct entrant *e = &entrants[i];

		if (!e->ready || (!cycle && e->peer == &peer_notify) ||
		    (e->peer && e->peer->size_max && size > e->peer->size_max))
			continue;
		e->size = size;
		c[n_c++] = (struct contender){.operation = cycle ? "end to end" : "put+drop",
					      .variant = e->name,
					      .run = cycle ? run_cycle : run_put,
					      .own_ns = &e->all_ns,
					      .inner_ns = &e->put_ns,
					      .arg = e};
	}
	r = measure_contenders(c, n_c, rounds, n_ops, n_ops > 20 ? 10 : 1, &failed);
	if (r < 0)
		errx(1, "%s, %zu bytes: %s", failed->variant, size, strerror(-r));
	report_series(report, c, n_c, size, !cycle);
}

/* ---- starting -------------------------------------------------------------------------------- */

static int begin(void *arg)
{
	struct entrant *e = arg;

	return e->peer->consumer ? e->peer->consumer(&e->run) : 0;
}

static int take(void *arg, const void *message, size_t size, int fd)
{
	struct entrant *e = arg;

	return e->peer->take(&e->run, message, size, fd);
}

static int start(struct entrant *e)
{
	int r = 0;

	if (!e->peer) {
		r = peer_python_start(&e->python);
		snprintf(e->run.reason, sizeof(e->run.reason), "%s", e->python.reason);
		return r;
	}
	if (e->peer->prepare)
		r = e->peer->prepare(&e->run);
	if (r == 0)
		r = exchange_start(&e->exchange, &(struct exchange_consumer){begin, take, e});
	return r;
}

/* All consumers are forked before any producer opens what is its own. */
static void start_all(struct report *report, struct entrant *entrants, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct entrant *e = &entrants[i];
		int r = start(e);

		e->ready = r == 0;
		if (r < 0)
			report_skip(report, e->name,
				    e->run.reason[0] ? e->run.reason : strerror(-r));
	}
	for (size_t i = 0; i < n; i++) {
		struct entrant *e = &entrants[i];
		int r = e->ready && e->peer && e->peer->producer ? e->peer->producer(&e->run) : 0;

		if (r < 0) {
			e->ready = false;
			report_skip(report, e->name,
				    e->run.reason[0] ? e->run.reason : strerror(-r));
		}
	}
}

static void stop_all(struct entrant *entrants, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct entrant *e = &entrants[i];

		exchange_stop(&e->exchange);
		if (!e->peer)
			peer_python_stop(&e->python);
		else if (e->peer->finish)
			e->peer->finish(&e->run);
	}
}

static void skip_missing(struct report *report)
{
#ifndef BENCH_HAVE_LMDB
	report_skip(report, "LMDB", "built without it: liblmdb-dev was missing");
#endif
#ifndef BENCH_HAVE_BOOST
	report_skip(report, "Boost.Interprocess",
		    "built without it: libboost-dev or a C++ compiler was missing");
#endif
#ifndef BENCH_HAVE_REDIS
	report_skip(report, "Redis", "built without it: libhiredis-dev was missing");
#endif
#ifndef BENCH_HAVE_ICEORYX2
	report_skip(report, "iceoryx2",
		    "built without it: configure with -DSHMSTORE_BENCH_ICEORYX2=ON");
#endif
	(void)report;
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = {1u << 10, 4u << 10, 64u << 10, 256u << 10,
				       1u << 20, 4u << 20, 16u << 20, 64u << 20};
	struct report_options options;
	struct report *report =
		report_new(argc, argv, "bench_peers", "the same cycle on other systems", &options);
	struct place own = {0}, devshm;
	struct entrant entrants[] = {
		{.peer = &peer_notify, .name = "notify only"},
		{.peer = &peer_shmstore, .name = "shmstore", .run.place = &own},
		{.peer = &peer_shmstore_fresh, .name = "shmstore, no recycling", .run.place = &own},
		{.peer = &peer_shmstore, .name = "shmstore on /dev/shm", .run.place = &devshm},
		{.peer = &peer_shmstore_packed, .name = "packed", .run.place = &own},
		{.peer = &peer_shmstore_packed, .name = "packed on /dev/shm", .run.place = &devshm},
		{.peer = &peer_segment, .name = "packed, no store", .run.place = &own},
#ifdef BENCH_HAVE_BOOST
		{.peer = &peer_boost, .name = "Boost managed_mapped_file", .run.place = &own},
#endif
#ifdef BENCH_HAVE_LMDB
		{.peer = &peer_lmdb, .name = "LMDB, writemap, nosync", .run.place = &own},
#endif
#ifdef BENCH_HAVE_ICEORYX2
		{.peer = &peer_iceoryx2, .name = "iceoryx2 on /dev/shm", .run.place = &own},
#endif
		{.peer = &peer_memfd, .name = "memfd + SCM_RIGHTS, sealed"},
		{.peer = &peer_shm_open, .name = "shm_open + mmap + memcpy", .run.place = &devshm},
		{.peer = NULL, .name = "Python shared_memory"},
#ifdef BENCH_HAVE_REDIS
		{.peer = &peer_redis, .name = "Redis, Unix socket", .run.place = &own},
#endif
	};
	const void *data = measure_memory(PEER_SIZE_MAX);
	int r;

	if (!report || !data)
		err(1, "out of memory");
	r = measure_pin(options.cpu);
	if (r < 0)
		errx(1, "--cpu %d: %s", options.cpu, strerror(-r));
	report_note(report, "all processes on CPU %d", r);
	r = place_open_mount(&own, 4ull << 30, 0);
	if (r < 0) {
		report_note(report,
			    "not root: no tmpfs of our own with huge=within_size, all on /dev/shm");
		r = place_open_devshm(&own);
	}
	if (r < 0 || place_open_devshm(&devshm) < 0)
		err(1, "no place for the files");
	report_note(report,
		    "files on %s, huge=%s; those of POSIX shared memory and of \"on /dev/shm\" "
		    "there, huge=%s",
		    own.path, own.huge, devshm.huge);
	skip_missing(report);
	for (size_t i = 0; i < N_OF(entrants); i++) {
		entrants[i].data = data;
		entrants[i].exchange.fd = -1;
	}
	start_all(report, entrants, N_OF(entrants));
	for (size_t i = 0; i < N_OF(sizes); i++) {
		if (options.limit && sizes[i] > options.limit)
			continue;
		if (place_warm(&own, 6 * sizes[i]) < 0 || place_warm(&devshm, 2 * sizes[i]) < 0)
			err(1, "warming the memory");
		bench_size(report, &options, entrants, N_OF(entrants), sizes[i], true);
		bench_size(report, &options, entrants, N_OF(entrants), sizes[i], false);
	}
	/* Last: what it leaves behind makes LMDB twice as slow. */
	for (size_t i = 0; i < N_OF(sizes) && sizes[i] <= STANDING_MAX; i++)
		bench_standing(report, &options, entrants, N_OF(entrants), sizes[i]);
	stop_all(entrants, N_OF(entrants));
	place_close(&own);
	place_close(&devshm);
	r = report_print(report);
	report_free(report);
	return r;
}
