/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_steady.c: what does an object cost from one process to another, over and over?
 *
 * A producer puts an object of a size that varies by 20 % up and down, hands it off and sends the
 * ticket over a socket; a consumer adopts it, gets it, reads a byte of each page, drops the view,
 * deletes its link and answers; the producer deletes its own. Both are pinned to ONE CPU, so that
 * no wake-up of a sleeping CPU (25 us each way) hides the work. Beside it in the same rounds:
 * memcpy of the same sizes, the bare socket exchange, and the same cycle out of bare system
 * calls. Files and packed objects; of both also with 10,000 objects that stand: a cycle puts one
 * more, and deletes the oldest.
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
#define KEY "k" /* of the bare calls */

#define STANDING     10000u
#define STANDING_MAX (64 * KIB) /* bytes of one of them */
#define PACK_MAX     (16 * MIB)
#define NAME_SIZE    16u /* an object's key and a NUL */

/* One way of going through the cycle: a pair of processes. */
struct pair {
	const struct place *place;
	const char *name;               /* of the producer's store */
	uint64_t recycle_max, pack_max; /* of both stores */
	uint32_t n_standing; /* objects that stand while one more goes through the cycle */
	struct exchange exchange;
	struct shmstore_partition *partition;
	struct shmstore *store;
	const void *data;
	void *copy;
	size_t size; /* about */
	uint64_t put_ns;
	struct bare bare;
	uint32_t n; /* objects so far: chooses the next size */
};

/* A message to the consumer. */
struct message {
	uint32_t number;               /* of the object */
	struct shmstore_ticket ticket; /* its path's end is left out */
};

/* Writes the key of an object. Returns its size. */
static size_t key_of(uint32_t number, char ret[NAME_SIZE])
{
	memcpy(ret, "object-", 7);
	for (size_t i = NAME_SIZE - 1; i-- > 7; number /= 10)
		ret[i] = (char)('0' + number % 10);
	return NAME_SIZE - 1;
}

/* size times 0.8 to 1.2, in an order that repeats itself never and is the same for all. */
static size_t next_size(struct pair *p)
{
	uint64_t fraction = (uint32_t)(p->n++ * 2654435769u); /* golden ratio: spreads evenly */

	return (size_t)((double)p->size * (0.8 + 0.4 * (double)fraction / 4294967296.0));
}

/* ---- the consumers' side: runs in the child -------------------------------------------------- */

static int open_store(struct pair *p, const char *suffix)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	char path[128], name[64];
	int r = place_path(p->place, "partition", path, sizeof(path));

	options.recycle_max = p->recycle_max;
	options.pack_max = p->pack_max;
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
	struct message m;
	struct shmstore_view *v;
	char key[NAME_SIZE];
	const void *bytes;
	size_t key_size;
	uint64_t n;
	int r;

	(void)fd;
	if (size > sizeof(m))
		return -EINVAL;
	memcpy(&m, message, size);
	key_size = key_of(m.number, key);
	r = shmstore_adopt(p->store, key, key_size, &m.ticket, 0);
	if (r == 0)
		r = shmstore_get(p->store, key, key_size, 0, &v);
	if (r < 0)
		return r;
	bytes = shmstore_view_buffer(v, 0, &n);
	measure_touch(bytes, n);
	shmstore_view_unref(v);
	return shmstore_delete(p->store, key, key_size);
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

/* ---- the producers' side --------------------------------------------------------------------- */

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

static int put_next(struct pair *p, uint32_t *ret_number, char ret_key[NAME_SIZE])
{
	struct iovec buffer = {(void *)(uintptr_t)p->data, 0};
	size_t key_size;

	*ret_number = p->n;
	key_size = key_of(p->n, ret_key);
	buffer.iov_len = next_size(p);
	return shmstore_put(p->store, ret_key, key_size, NULL, 0, &buffer, 1, 0);
}

static int drop(struct pair *p, uint32_t number)
{
	char key[NAME_SIZE];
	size_t key_size = key_of(number, key);

	return shmstore_delete(p->store, key, key_size);
}

static int run_store(void *arg)
{
	struct pair *p = arg;
	struct message m;
	char key[NAME_SIZE];
	uint64_t t0 = measure_now_ns();
	int r = put_next(p, &m.number, key);

	p->put_ns = measure_now_ns() - t0;
	if (r == 0)
		r = shmstore_handoff(p->store, key, NAME_SIZE - 1, 60000, &m.ticket);
	if (r == 0)
		r = exchange_call(&p->exchange, &m,
				  offsetof(struct message, ticket.path) + strlen(m.ticket.path) + 1,
				  -1);
	return r < 0 ? r : drop(p, m.number - p->n_standing);
}

/* Puts the objects that stand, and takes them away. */
static int set_up(struct pair *p)
{
	char key[NAME_SIZE];
	uint32_t number;
	int r = 0;

	p->n = 0;
	for (uint32_t i = 0; r == 0 && i < p->n_standing; i++)
		r = put_next(p, &number, key);
	return r;
}

static int take_down(struct pair *p)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < p->n_standing; i++)
		r = drop(p, p->n - 1 - i);
	return r;
}

/* ---- a place --------------------------------------------------------------------------------- */

enum {
	COPY,
	EXCHANGE,
	BARE,
	DEFAULT,
	NO_RECYCLING,
	PACKED,
	DEFAULT_STANDING, /* these two last: large objects go without them */
	PACKED_STANDING,
	N_PAIRS
};

#define STORE(variant_, name_, recycle, pack, n)                                                  \
	{                                                                                         \
		.variant = variant_, .begin = begin_store, .take = take_ticket, .run = run_store, \
		.name = name_, .recycle_max = recycle, .pack_max = pack, .n_standing = n          \
	}

static const struct {
	const char *variant;
	int (*begin)(void *);
	int (*take)(void *, const void *, size_t, int);
	int (*run)(void *);
	const char *name; /* of its stores */
	uint64_t recycle_max, pack_max;
	uint32_t n_standing;
} shapes[N_PAIRS] = {
	[COPY] = {"memcpy", .run = run_copy},
	[EXCHANGE] = {"socket exchange", .take = take_nothing, .run = run_exchange},
	[BARE] = {"bare calls", .take = take_bare, .run = run_bare},
	[DEFAULT] = STORE("shmstore", "recycling", SHMSTORE_RECYCLE_DEFAULT, 0, 0),
	[NO_RECYCLING] = STORE("shmstore, no recycling", "plain", 0, 0, 0),
	[PACKED] = STORE("packed", "packed", SHMSTORE_RECYCLE_DEFAULT, PACK_MAX, 0),
	[DEFAULT_STANDING] = STORE("shmstore, 10,000 in turn", "standing", SHMSTORE_RECYCLE_DEFAULT,
				   0, STANDING),
	[PACKED_STANDING] = STORE("packed, 10,000 in turn", "packs", SHMSTORE_RECYCLE_DEFAULT,
				  PACK_MAX, STANDING),
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
		r = exchange_start(&p->exchange,
				   &(struct exchange_consumer){shapes[i].begin, shapes[i].take, p});
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

static void end_to_end_target(struct report *r, const char *id, const char *size, double us,
			      double ratio, const struct contender c[N_PAIRS])
{
	struct measure_stat s = measure_stat(&c[DEFAULT].series);
	char what[96];

	snprintf(what, sizeof(what), "steady %s end to end, within_size, one CPU", size);
	report_target(r, &(struct report_target){id, what, "us", REPORT_AT_MOST, us, s.median / 1e3,
						 s.min / 1e3, s.max / 1e3});
	report_ratio(r, id, what, "x socket exchange", REPORT_AT_MOST, ratio, &c[DEFAULT].series,
		     &c[EXCHANGE].series);
}

static void targets(struct report *r, const struct place *place, size_t size,
		    const struct contender c[N_PAIRS])
{
	bool huge = strcmp(place->label, "within_size") == 0;
	double least = huge ? 0.85 : 0.75;
	char what[96];

	if (size == 64 * MIB) {
		snprintf(what, sizeof(what), "steady put of 64 MiB, %s", place->label);
		report_ratio(r, "1d", what, "x memcpy", REPORT_AT_LEAST, least, &c[COPY].series,
			     &c[DEFAULT].inner);
		snprintf(what, sizeof(what), "steady 64 MiB end to end, %s", place->label);
		report_ratio(r, "1e", what, "x memcpy", REPORT_AT_LEAST, least, &c[COPY].series,
			     &c[DEFAULT].series);
	}
	if (huge && size == 64 * KIB)
		end_to_end_target(r, "1f", "64 KiB", 20, 2.9, c);
	if (huge && size == MIB)
		end_to_end_target(r, "1g", "1 MiB", 60, 8, c);
}

static void bench_size(struct report *r, const struct report_options *options,
		       struct pair pairs[N_PAIRS], size_t size)
{
	struct contender c[N_PAIRS] = {0};
	const struct contender *failed = NULL;
	const struct place *place = pairs[0].place;
	size_t n_ops = size <= 64 * KIB ? 300 : size <= MIB ? 100 : 8;
	size_t n = size <= STANDING_MAX ? N_PAIRS : DEFAULT_STANDING;
	int e = place_warm(place, 4 * size);

	for (size_t i = 0; i < n; i++) {
		pairs[i].size = size;
		if (e == 0)
			e = set_up(&pairs[i]);
		c[i] = (struct contender){.operation = i == COPY ? "copy" : "cycle",
					  .variant = shapes[i].variant,
					  .run = shapes[i].run,
					  .arg = &pairs[i],
					  .inner_ns = i >= BARE ? &pairs[i].put_ns : NULL};
	}
	if (e == 0)
		e = measure_contenders(c, n, options->rounds,
				       options->quick && n_ops > 50 ? 50 : n_ops,
				       n_ops > 20 ? 20 : 2, &failed);
	if (e < 0)
		errx(1, "%s, %zu bytes, %s: %s", place->label, size,
		     failed ? failed->variant : "warming", shmstore_strerror(e));
	for (size_t i = 0; i < n; i++) {
		e = take_down(&pairs[i]);
		if (e < 0)
			errx(1, "%s: %s", shapes[i].variant, shmstore_strerror(e));
	}
	for (size_t i = 0; i < n; i++)
		report_row(r, place->label, c[i].operation, c[i].variant, size, &c[i].series);
	for (size_t i = 0; i < n; i++)
		report_row(r, place->label, "put in cycle", c[i].variant, size, &c[i].inner);
	targets(r, place, size, c);
	for (size_t i = 0; i < n; i++) {
		measure_deinit(&c[i].series);
		measure_deinit(&c[i].inner);
	}
}

static void bench_place(struct report *r, const struct report_options *options,
			const struct place *place, const void *data, void *copy)
{
	static const size_t sizes[] = {KIB, 64 * KIB, MIB, 64 * MIB};
	struct pair pairs[N_PAIRS];

	for (size_t i = 0; i < N_PAIRS; i++)
		pairs[i] = (struct pair){.place = place,
					 .name = shapes[i].name,
					 .recycle_max = shapes[i].recycle_max,
					 .pack_max = shapes[i].pack_max,
					 .n_standing = shapes[i].n_standing,
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
	struct report *r =
		report_new(argc, argv, "bench_steady",
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
	report_note(r,
		    "both processes on CPU %d; sizes vary by 20 %% up and down, the same for all",
		    e);
	data = measure_memory(largest);
	copy = measure_memory(largest);
	if (!data || !copy)
		err(1, "memory for %zu bytes", largest);
	e = place_open_mount(&place, 4096 * (uint64_t)MIB, 0);
	if (e == 0) {
		bench_place(r, &options, &place, data, copy);
		place_close(&place);
	} else
		report_skip(r, "a tmpfs of our own with huge=within_size",
			    e == -EPERM ? "needs root" : strerror(-e));
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
