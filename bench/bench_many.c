/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_many.c: what do 100,000 small objects cost in one process, beside others?
 *
 * In each round every contender begins anew, with nothing in its store, and does the same with all
 * of its objects, one by one: puts them into a store that grows, gets each of them, in this order
 * and at random, reads a byte and lets go, deletes them, and puts and deletes them once more where
 * the store has room for them already. A figure is the time of all objects / their number.
 * And before: what memory the objects take, with that of 8 more processes that hold all of them.
 */
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "measure.h"
#include "peer.h"
#include "report.h"

#define N_OBJECTS   100000u
#define SIZE        ((size_t)1024)
#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

enum step {
	PUT,
	GET,
	GET_RANDOM,
	DELETE,
	PUT_AGAIN,
	DELETE_AGAIN,
	N_STEPS
};

static const char *const step_names[N_STEPS] = {
	[PUT] = "put, growing", [GET] = "get + touch",      [GET_RANDOM] = "get + touch, at random",
	[DELETE] = "delete",    [PUT_AGAIN] = "put, again", [DELETE_AGAIN] = "delete, again",
};

struct entrant {
	const struct peer *peer;
	const char *name;
	struct peer_run run;
	bool skipped;
	struct measure_series series[N_STEPS];
};

struct many {
	unsigned n;
	unsigned *random; /* the numbers below n, mixed */
	const void *data;
};

static int do_one(struct entrant *e, const struct many *m, enum step step, unsigned i)
{
	if (step == PUT || step == PUT_AGAIN)
		return e->peer->put_at(&e->run, i, m->data, SIZE);
	if (step == DELETE || step == DELETE_AGAIN)
		return e->peer->delete_at(&e->run, i);
	return e->peer->get_at(&e->run, step == GET_RANDOM ? m->random[i] : i);
}

static int do_all(struct entrant *e, const struct many *m, enum step step)
{
	uint64_t t0 = measure_now_ns();
	int r = 0;

	for (unsigned i = 0; i < m->n && r == 0; i++)
		r = do_one(e, m, step, i);
	measure_add(&e->series[step], (measure_now_ns() - t0) / m->n);
	measure_end_round(&e->series[step]);
	return r;
}

static int begin(struct entrant *e)
{
	int r = e->peer->prepare(&e->run);

	if (r == 0 && e->peer->producer)
		r = e->peer->producer(&e->run);
	return r;
}

/* True: the round went well. */
static void round_of(struct report *r, struct entrant *e, const struct many *m)
{
	int error;

	if (e->skipped)
		return;
	if (place_warm(e->run.place, 3ull * m->n * SIZE) < 0)
		err(1, "warming the memory");
	error = begin(e);
	for (unsigned step = 0; step < N_STEPS && error == 0; step++)
		error = do_all(e, m, (enum step)step);
	e->peer->finish(&e->run);
	if (error < 0) {
		e->skipped = true;
		report_skip(r, e->name, e->run.reason[0] ? e->run.reason : strerror(-error));
	}
}

/* ---- memory ---------------------------------------------------------------------------------- */

#define N_HOLDERS 8u

struct holder {
	struct exchange exchange;
	struct entrant *entrant;
};

static int holder_begin(void *arg)
{
	struct holder *h = arg;

	return h->entrant->peer->consumer(&h->entrant->run);
}

static int holder_take(void *arg, const void *message, size_t size, int fd)
{
	struct holder *h = arg;

	(void)fd;
	return h->entrant->peer->keep(&h->entrant->run, message, size);
}

/* Bytes that the place and the private memory of all processes have more
 * than when nothing was put. */
static int hold_all(struct entrant *e, const struct many *m, struct holder *holders,
		    uint64_t *ret_bytes)
{
	uint64_t before = place_used(e->run.place) + measure_private(getpid());
	struct peer_message message = {.fd = -1};
	int r = 0;

	for (unsigned k = 0; k < N_HOLDERS; k++)
		before += measure_private(holders[k].exchange.child);
	for (unsigned i = 0; i < m->n && r == 0; i++) {
		r = e->peer->put_at(&e->run, i, m->data, SIZE);
		for (unsigned k = 0; k < N_HOLDERS && r == 0; k++) {
			r = e->peer->hand_at(&e->run, i, &message);
			if (r == 0)
				r = exchange_call(&holders[k].exchange, message.bytes, message.size,
						  -1);
		}
	}
	*ret_bytes = place_used(e->run.place) + measure_private(getpid()) - before;
	for (unsigned k = 0; k < N_HOLDERS; k++)
		*ret_bytes += measure_private(holders[k].exchange.child);
	return r;
}

/* Bytes of memory for each byte stored, when 8 more processes have every
 * object and have looked at it. */
static void memory_of(struct report *r, struct entrant *e, const struct many *m)
{
	struct holder holders[N_HOLDERS];
	uint64_t bytes = 0;
	char what[96];
	unsigned n = 0;
	int error;

	if (e->skipped)
		return;
	error = e->peer->prepare(&e->run);
	for (; n < N_HOLDERS && error == 0; n++) {
		holders[n] = (struct holder){.entrant = e};
		error = exchange_start(
			&holders[n].exchange,
			&(struct exchange_consumer){holder_begin, holder_take, &holders[n]});
	}
	if (error == 0)
		error = e->peer->producer(&e->run);
	if (error == 0)
		error = hold_all(e, m, holders, &bytes);
	if (error < 0) {
		report_skip(r, "memory with 8 holders",
			    e->run.reason[0] ? e->run.reason : strerror(-error));
	} else {
		snprintf(what, sizeof(what), "memory, 8 more holders, 1 KiB, %s", e->name);
		report_target(
			r, &(struct report_target){.id = "18c",
						   .what = what,
						   .unit = "x bytes stored",
						   .relation = REPORT_AT_MOST,
						   .target = 1.15,
						   .value = (double)bytes / ((double)m->n * SIZE)});
	}
	while (n-- > 0)
		exchange_stop(&holders[n].exchange);
	e->peer->finish(&e->run);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static unsigned *mixed(unsigned n)
{
	unsigned *numbers = malloc(n * sizeof(*numbers));
	uint64_t x = 88172645463325252ull;

	for (unsigned i = 0; numbers && i < n; i++)
		numbers[i] = i;
	for (unsigned i = n; numbers && i-- > 1;) {
		unsigned k, keep = numbers[i];

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		k = (unsigned)(x % (i + 1));
		numbers[i] = numbers[k];
		numbers[k] = keep;
	}
	return numbers;
}

/* Ours beside each of the others: at least as many operations a second. */
static void targets(struct report *r, const struct entrant *ours, const struct entrant *entrants,
		    size_t n)
{
	char what[96], unit[64];

	for (size_t i = 0; i < n; i++) {
		if (entrants[i].skipped || entrants[i].peer == &peer_shmstore_packed)
			continue;
		for (unsigned step = 0; step < N_STEPS; step++) {
			snprintf(what, sizeof(what), "%s, 1 KiB, packed", step_names[step]);
			snprintf(unit, sizeof(unit), "x %s", entrants[i].name);
			report_ratio(r, "18b", what, unit, REPORT_AT_MOST, 1, &ours->series[step],
				     &entrants[i].series[step]);
		}
	}
}

int main(int argc, char **argv)
{
	struct report_options options;
	struct report *report =
		report_new(argc, argv, "bench_many",
			   "100,000 objects of 1 KiB in one process, on other systems", &options);
	struct place own = {0}, devshm;
	struct many m;
	struct entrant entrants[] = {
		{.peer = &peer_shmstore_packed, .name = "packed", .run.place = &own},
		{.peer = &peer_shmstore_packed, .name = "packed on /dev/shm", .run.place = &devshm},
#ifdef BENCH_HAVE_BOOST
		{.peer = &peer_boost, .name = "Boost managed_mapped_file", .run.place = &own},
#endif
#ifdef BENCH_HAVE_LMDB
		{.peer = &peer_lmdb, .name = "LMDB, writemap, nosync", .run.place = &own},
#endif
	};
	int r;

	if (!report)
		err(1, "out of memory");
	m.n = options.limit ? (unsigned)options.limit : options.quick ? N_OBJECTS / 5 : N_OBJECTS;
	m.random = mixed(m.n);
	m.data = measure_memory(SIZE);
	if (!m.random || !m.data)
		err(1, "out of memory");
	r = measure_pin(options.cpu);
	if (r < 0)
		errx(1, "--cpu %d: %s", options.cpu, strerror(-r));
	report_note(report, "one process on CPU %d, %u objects; --limit: another number of them", r,
		    m.n);
	r = place_open_mount(&own, 4ull << 30, 0);
	if (r < 0) {
		report_note(report,
			    "not root: no tmpfs of our own with huge=within_size, all on /dev/shm");
		r = place_open_devshm(&own);
	}
	if (r < 0 || place_open_devshm(&devshm) < 0)
		err(1, "no place for the files");
	report_note(report, "files on %s, huge=%s; those of \"on /dev/shm\" there, huge=%s",
		    own.path, own.huge, devshm.huge);
#ifndef BENCH_HAVE_LMDB
	report_skip(report, "LMDB", "built without it: liblmdb-dev was missing");
#endif
#ifndef BENCH_HAVE_BOOST
	report_skip(report, "Boost.Interprocess",
		    "built without it: libboost-dev or a C++ compiler was missing");
#endif
	/* First of all: a heap that has been used has room already, and the
	 * holders would get it from us. */
	for (size_t i = 0; i < N_OF(entrants); i++) {
		if (entrants[i].peer->hand_at)
			memory_of(report, &entrants[i], &m);
	}
	for (unsigned round = 0; round < options.rounds; round++) {
		for (size_t i = 0; i < N_OF(entrants); i++)
			round_of(report, &entrants[(round + i) % N_OF(entrants)], &m);
	}
	for (unsigned step = 0; step < N_STEPS; step++) {
		for (size_t i = 0; i < N_OF(entrants); i++)
			report_row(report, "one process", step_names[step], entrants[i].name, SIZE,
				   &entrants[i].series[step]);
	}
	targets(report, &entrants[0], entrants, N_OF(entrants));
	for (size_t i = 0; i < N_OF(entrants); i++) {
		for (unsigned step = 0; step < N_STEPS; step++)
			measure_deinit(&entrants[i].series[step]);
	}
	free(m.random);
	place_close(&own);
	place_close(&devshm);
	r = report_print(report);
	report_free(report);
	return r;
}
