/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_steady.c: what does an object cost from one process to another, over and over?
 *
 * A producer puts an object of a size that varies by 20 % up and down, hands it off and sends the ticket over a socket; a
 * consumer adopts it, gets it, reads a byte of each page, drops the view, deletes its link and answers; the producer deletes
 * its own. Both are pinned to ONE CPU, so that no wake-up of a sleeping CPU (25 us each way) hides the work. Beside it in the
 * same rounds: memcpy of the same sizes, the bare socket exchange, and the same cycle out of bare system calls.
 */
#include <err.h>
#include <errno.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <string.h>

#include "bare.h"
#include "exchange.h"
#include "measure.h"
#include "place.h"
#include "report.h"

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)
#define KEY "k"

/* One way of going through the cycle: a pair of processes. */
struct pair {
	const struct place *place;
	const char *name;     /* of the producer's store */
	uint64_t recycle_max; /* of both stores */
	struct exchange exchange;
	struct shmstore_partition *partition;
	struct shmstore *store;
	const void *data;
	void *copy;
	size_t size; /* about */
	uint64_t put_ns;
	struct bare bare;
	uint32_t n; /* cycles so far: chooses the next size */
};

/* size times 0.8 to 1.2, in an order that repeats itself never and is the same for all. */
static size_t next_size(struct pair *p)
{
	uint64_t fraction = (uint32_t)(p->n++ * 2654435769u); /* golden ratio: spreads evenly */

	return (size_t)((double)p->size * (0.8 + 0.4 * (double)fraction / 4294967296.0));
}

/* ---- the consumers' side: runs in the child ----------------------------------------------------------------------- */

static int open_store(struct pair *p, const char *suffix)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	char path[128], name[64];
	int r = place_path(p->place, "partition", path, sizeof(path));

	options.recycle_max = p->recycle_max;
	snprintf(name, sizeof(name), "%s-%s", p->name, suffix);
	if (r == 0)
		r = shmstore_partition_open(path, SHMSTORE_CREATE, &p->partition);
	return r < 0 ? r : shmstore_open(p->partition, name, &options, &p->store);
}

static int begin_store(void *arg)
{
	return open_store(arg, "consumer");
}

static int take_ticket(void *arg, const void *message, size_t size, int fd)
{
	struct pair *p = arg;
	struct shmstore_ticket ticket;
	struct shmstore_view *v;
	const void *bytes;
	uint64_t n;
	int r;

	(void)fd;
	if (size > sizeof(ticket))
		return -EINVAL;
	memcpy(&ticket, message, size);
	r = shmstore_adopt(p->store, KEY, 1, &ticket, 0);
	if (r == 0)
		r = shmstore_get(p->store, KEY, 1, 0, &v);
	if (r < 0)
		return r;
	bytes = shmstore_view_buffer(v, 0, &n);
	measure_touch(bytes, n);
	shmstore_view_unref(v);
	return shmstore_delete(p->store, KEY, 1);
}

static int take_nothing(void *arg, const void *message, size_t size, int fd)
{
	(void)arg;
	(void)message;
	(void)size;
	(void)fd;
	return 0;
}

static int take_bare(void *arg, const void *message, size_t size, int fd)
{
	struct pair *p = arg;
	uint64_t bytes;
	int r;

	(void)fd;
	if (size != sizeof(bytes))
		return -EINVAL;
	memcpy(&bytes, message, sizeof(bytes));
	r = bare_read(p->bare.other, KEY, bytes);
	return r < 0 ? r : bare_delete(p->bare.other, KEY);
}

/* ---- the producers' side ------------------------------------------------------------------------------------------ */

static int run_copy(void *arg)
{
	struct pair *p = arg;

	memcpy(p->copy, p->data, next_size(p));
	__asm__ volatile("" : : "r"(p->copy) : "memory");
	return 0;
}

static int run_exchange(void *arg)
{
	struct pair *p = arg;
	char message[120] = {0}; /* about what a ticket takes */

	return exchange_call(&p->exchange, message, sizeof(message), -1);
}

static int run_bare(void *arg)
{
	struct pair *p = arg;
	uint64_t size = next_size(p), t0 = measure_now_ns();
	int r = bare_put(&p->bare, KEY, p->data, size);

	p->put_ns = measure_now_ns() - t0;
	if (r == 0)
		r = bare_hand_over(&p->bare, KEY);
	if (r == 0)
		r = exchange_call(&p->exchange, &size, sizeof(size), -1);
	return r < 0 ? r : bare_delete(p->bare.objects, KEY);
}

static int run_store(void *arg)
{
	struct pair *p = arg;
	struct iovec buffer = {(void *)(uintptr_t)p->data, next_size(p)};
	struct shmstore_ticket ticket;
	uint64_t t0 = measure_now_ns();
	int r = shmstore_put(p->store, KEY, 1, NULL, 0, &buffer, 1, 0);

	p->put_ns = measure_now_ns() - t0;
	if (r == 0)
		r = shmstore_handoff(p->store, KEY, 1, 60000, &ticket);
	if (r == 0)
		r = exchange_call(&p->exchange, &ticket,
				  offsetof(struct shmstore_ticket, path) + strlen(ticket.path) + 1, -1);
	return r < 0 ? r : shmstore_delete(p->store, KEY, 1);
}

/* ---- a place ------------------------------------------------------------------------------------------------------ */

enum {
	COPY,
	EXCHANGE,
	BARE,
	DEFAULT,
	NO_RECYCLING,
	N_PAIRS
};

static const struct {
	const char *variant;
	int (*begin)(void *);
	int (*take)(void *, const void *, size_t, int);
	int (*run)(void *);
} shapes[N_PAIRS] = {
	[COPY] = {"memcpy", NULL, NULL, run_copy},
	[EXCHANGE] = {"socket exchange", NULL, take_nothing, run_exchange},
	[BARE] = {"bare calls", NULL, take_bare, run_bare},
	[DEFAULT] = {"shmstore", begin_store, take_ticket, run_store},
	[NO_RECYCLING] = {"shmstore, no recycling", begin_store, take_ticket, run_store},
};

static void start_pairs(struct pair pairs[N_PAIRS])
{
	int r;

	/* All children first: they then inherit no store of ours. */
	for (size_t i = 0; i < N_PAIRS; i++) {
		struct pair *p = &pairs[i];

		if (shapes[i].run == run_bare && bare_open(&p->bare, p->place) < 0)
			errx(1, "%s: no room for the bare files", p->place->path);
		if (!shapes[i].take)
			continue;
		r = exchange_start(&p->exchange, &(struct exchange_consumer){shapes[i].begin, shapes[i].take, p});
		if (r < 0)
			errx(1, "consumer of %s: %s", shapes[i].variant, strerror(-r));
	}
	for (size_t i = 0; i < N_PAIRS; i++) {
		r = shapes[i].begin ? open_store(&pairs[i], "producer") : 0;
		if (r < 0)
			errx(1, "%s: %s", shapes[i].variant, shmstore_strerror(r));
	}
}

static void stop_pairs(struct pair pairs[N_PAIRS])
{
	for (size_t i = 0; i < N_PAIRS; i++) {
		exchange_stop(&pairs[i].exchange);
		shmstore_close(pairs[i].store);
		shmstore_partition_unref(pairs[i].partition);
		bare_close(&pairs[i].bare);
	}
}

static void end_to_end_target(struct report *r, const char *id, const char *size, double us, double ratio,
			      const struct contender c[N_PAIRS])
{
	struct measure_stat s = measure_stat(&c[DEFAULT].series);
	char what[96];

	snprintf(what, sizeof(what), "steady %s end to end, within_size, one CPU", size);
	report_target(r, &(struct report_target){id, what, "us", REPORT_AT_MOST, us, s.median / 1e3, s.min / 1e3,
						 s.max / 1e3});
	report_ratio(r, id, what, "x socket exchange", REPORT_AT_MOST, ratio, &c[DEFAULT].series, &c[EXCHANGE].series);
}

static void targets(struct report *r, const struct place *place, size_t size, const struct contender c[N_PAIRS])
{
	bool huge = strcmp(place->label, "within_size") == 0;
	double least = huge ? 0.85 : 0.75;
	char what[96];

	if (size == 64 * MIB) {
		snprintf(what, sizeof(what), "steady put of 64 MiB, %s", place->label);
		report_ratio(r, "1d", what, "x memcpy", REPORT_AT_LEAST, least, &c[COPY].series, &c[DEFAULT].inner);
		snprintf(what, sizeof(what), "steady 64 MiB end to end, %s", place->label);
		report_ratio(r, "1e", what, "x memcpy", REPORT_AT_LEAST, least, &c[COPY].series, &c[DEFAULT].series);
	}
	if (huge && size == 64 * KIB)
		end_to_end_target(r, "1f", "64 KiB", 20, 2.9, c);
	if (huge && size == MIB)
		end_to_end_target(r, "1g", "1 MiB", 60, 8, c);
}

static void bench_size(struct report *r, const struct report_options *options, struct pair pairs[N_PAIRS], size_t size)
{
	struct contender c[N_PAIRS] = {0};
	const struct contender *failed = NULL;
	const struct place *place = pairs[0].place;
	size_t n_ops = size <= 64 * KIB ? 300 : size <= MIB ? 100 : 8;
	int e;

	for (size_t i = 0; i < N_PAIRS; i++) {
		pairs[i].size = size;
		pairs[i].n = 0;
		c[i] = (struct contender){.operation = i == COPY ? "copy" : "cycle",
					  .variant = shapes[i].variant,
					  .run = shapes[i].run,
					  .arg = &pairs[i],
					  .inner_ns = i >= BARE ? &pairs[i].put_ns : NULL};
	}
	e = place_warm(place, 4 * size);
	if (e == 0)
		e = measure_contenders(c, N_PAIRS, options->rounds, options->quick && n_ops > 50 ? 50 : n_ops,
				       n_ops > 20 ? 20 : 2, &failed);
	if (e < 0)
		errx(1, "%s, %zu bytes, %s: %s", place->label, size, failed ? failed->variant : "warming",
		     shmstore_strerror(e));
	for (size_t i = 0; i < N_PAIRS; i++)
		report_row(r, place->label, c[i].operation, c[i].variant, size, &c[i].series);
	for (size_t i = 0; i < N_PAIRS; i++)
		report_row(r, place->label, "put in cycle", c[i].variant, size, &c[i].inner);
	targets(r, place, size, c);
	for (size_t i = 0; i < N_PAIRS; i++) {
		measure_deinit(&c[i].series);
		measure_deinit(&c[i].inner);
	}
}

static void bench_place(struct report *r, const struct report_options *options, const struct place *place,
			const void *data, void *copy)
{
	static const size_t sizes[] = {KIB, 64 * KIB, MIB, 64 * MIB};
	struct pair pairs[N_PAIRS];

	for (size_t i = 0; i < N_PAIRS; i++)
		pairs[i] = (struct pair){.place = place,
					 .name = i == NO_RECYCLING ? "plain" : "recycling",
					 .recycle_max = i == NO_RECYCLING ? 0 : SHMSTORE_RECYCLE_DEFAULT,
					 .exchange = {-1, 0},
					 .bare = {.objects = -1, .handoff = -1, .other = -1},
					 .data = data,
					 .copy = copy};
	start_pairs(pairs);
	report_note(r, "%s: %s, huge=%s", place->label, place->path, place->huge);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (!options->limit || sizes[i] <= options->limit)
			bench_size(r, options, pairs, sizes[i]);
	stop_pairs(pairs);
}

int main(int argc, char **argv)
{
	struct report_options options;
	struct report *r = report_new(argc, argv, "bench_steady",
				      "an object from one process to another, over and over", &options);
	const size_t largest = 64 * MIB / 10 * 12 + KIB;
	struct place place;
	void *data, *copy;
	int e;

	if (!r)
		err(1, "out of memory");
	e = measure_pin(options.cpu);
	if (e < 0)
		errx(1, "--cpu %d: %s", options.cpu, strerror(-e));
	report_note(r, "both processes on CPU %d; sizes vary by 20 %% up and down, the same for all", e);
	data = measure_memory(largest);
	copy = measure_memory(largest);
	if (!data || !copy)
		err(1, "memory for %zu bytes", largest);
	e = place_open_mount(&place, 4096 * (uint64_t)MIB, 0);
	if (e == 0) {
		bench_place(r, &options, &place, data, copy);
		place_close(&place);
	} else
		report_skip(r, "a tmpfs of our own with huge=within_size", e == -EPERM ? "needs root" : strerror(-e));
	e = place_open_devshm(&place);
	if (e == 0) {
		bench_place(r, &options, &place, data, copy);
		place_close(&place);
	} else
		report_skip(r, "/dev/shm", strerror(-e));
	e = report_print(r);
	report_free(r);
	return e;
}
