/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_tier.c: does demotion keep up with the disk?
 *
 * A store holds 4 GiB of one kind of data; shmstore_partition_evict() demotes all of it with two
 * worker threads, and shmstore_prefetch() brings all of it back. Beside that, in the same round and
 * on the same disk, and beginning with another one each round: as many bytes written and read in
 * sequence, O_DIRECT, 4 MiB at a time, out of one buffer. Speeds are of the objects' bytes,
 * whatever becomes of them on the disk.
 *
 * Kinds: float64 noise in objects of 64 MiB and of 1 MiB; sorted 64-bit integers (gaps of up to
 * 2^15) and timestamps (a second apart, give or take) in objects of 64 MiB. Everything is new each
 * time: what was demoted before would not be written again.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "measure.h"
#include "place.h"
#include "report.h"

#define MIB       (1024ull * 1024)
#define CHUNK     (4 * MIB)
#define LARGE     (64 * MIB)
#define N_THREADS 2u
/* an object begins so many words further into the data, so that none is like another */
#define SHIFTS    512u

enum kind {
	NOISE,
	NOISE_SMALL,
	SORTED,
	TIMESTAMPS,
	N_KINDS
};

static const char *const KINDS[N_KINDS] = {"float64 noise", "float64 noise, many objects",
					   "sorted int64", "timestamps"};
static const uint64_t SIZES[N_KINDS] = {LARGE, MIB, LARGE, LARGE};
/* At least so many times the speed of bare writes. */
static const double TARGETS[N_KINDS] = {0.9, 0.9, 2.0, 2.0};

struct scene {
	struct place memory, disk;
	struct shmstore_partition *p;
	struct shmstore *s;
	uint64_t total; /* bytes that are moved each time */
	uint64_t *data[N_KINDS];
	char *chunk;
	struct measure_series bare_write, bare_read, demote[N_KINDS], promote[N_KINDS];
	uint64_t written[N_KINDS]; /* in the last round */
};

static void must(int r, const char *what)
{
	if (r < 0)
		errx(1, "%s: %s %s", what, shmstore_strerror(r), shmstore_error_detail());
}

/* ---- data ------------------------------------------------------------------------------------ */

static uint64_t next_random(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *state >> 11; /* 53 bits */
}

static uint64_t next_word(enum kind kind, uint64_t before, uint64_t *state)
{
	uint64_t bits, random = next_random(state);
	double d = (double)random / (double)(UINT64_C(1) << 53);

	if (kind == SORTED)
		return before + (random >> 20) % 32768;
	if (kind == TIMESTAMPS)
		return before + 1000000000 + (random >> 20) % 1000;
	memcpy(&bits, &d, sizeof(bits));
	return bits;
}

static void make_data(struct scene *x)
{
	for (unsigned kind = 0; kind < N_KINDS; kind++) {
		uint64_t state = kind, before = UINT64_C(1700000000000000000),
			 n = LARGE / 8 + SHIFTS;

		x->data[kind] = measure_memory(n * 8);
		if (!x->data[kind])
			errx(1, "no memory");
		for (uint64_t i = 0; i < n; i++)
			x->data[kind][i] = before = next_word(kind, before, &state);
	}
}

static int key_of(uint64_t i, char ret[32])
{
	return snprintf(ret, 32, "object%llu", (unsigned long long)i);
}

static void put_all(struct scene *x, enum kind kind)
{
	char key[32];

	for (uint64_t i = 0; i < x->total / SIZES[kind]; i++) {
		struct iovec buffer = {x->data[kind] + i % SHIFTS, SIZES[kind]};
		int n = key_of(i, key);

		must(shmstore_put(x->s, key, (size_t)n, NULL, 0, &buffer, 1, SHMSTORE_NO_EVICT),
		     "put");
	}
}

/* ---- contenders ------------------------------------------------------------------------------ */

static void bare(struct scene *x)
{
	char path[128];
	uint64_t t = measure_now_ns();
	int fd;

	snprintf(path, sizeof(path), "%s/bare", x->disk.path);
	fd = open(path, O_CREAT | O_TRUNC | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
	if (fd < 0)
		err(1, "%s", path);
	for (uint64_t at = 0; at < x->total; at += CHUNK)
		if (pwrite(fd, x->chunk, CHUNK, (off_t)at) != (ssize_t)CHUNK)
			err(1, "write to %s", path);
	measure_add(&x->bare_write, measure_now_ns() - t);
	t = measure_now_ns();
	for (uint64_t at = 0; at < x->total; at += CHUNK)
		if (pread(fd, x->chunk, CHUNK, (off_t)at) != (ssize_t)CHUNK)
			err(1, "read of %s", path);
	measure_add(&x->bare_read, measure_now_ns() - t);
	close(fd);
	unlink(path);
}

static void demote(struct scene *x, enum kind kind)
{
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	struct shmstore_evict_report report;
	uint64_t t = measure_now_ns();
	int r;

	what.bytes = 2 * x->total; /* more than there is: all of it */
	what.n_threads = N_THREADS;
	r = shmstore_partition_evict(x->p, &what, &report);
	measure_add(&x->demote[kind], measure_now_ns() - t);
	if (r != -ENOSPC || report.disk_full || report.n_objects != x->total / SIZES[kind])
		errx(1, "eviction: %s %s: %llu objects", shmstore_strerror(r),
		     shmstore_error_detail(), (unsigned long long)report.n_objects);
	x->written[kind] = report.written;
}

static void promote(struct scene *x, enum kind kind)
{
	uint64_t n = x->total / SIZES[kind], t;
	struct iovec *keys = calloc(n, sizeof(*keys));
	char(*names)[32] = calloc(n, sizeof(*names));
	int r;

	if (!keys || !names)
		errx(1, "no memory");
	for (uint64_t i = 0; i < n; i++)
		keys[i] = (struct iovec){names[i], (size_t)key_of(i, names[i])};
	t = measure_now_ns();
	r = shmstore_prefetch(x->s, keys, n, N_THREADS, SHMSTORE_NO_EVICT, NULL);
	measure_add(&x->promote[kind], measure_now_ns() - t);
	if (r < 0 || (uint64_t)r != n)
		errx(1, "prefetch: %d of %llu: %s", r, (unsigned long long)n,
		     shmstore_error_detail());
	for (uint64_t i = 0; i < n; i++)
		must(shmstore_delete(x->s, keys[i].iov_base, keys[i].iov_len), "delete");
	free(keys);
	free(names);
}

static void measure(struct scene *x, unsigned rounds)
{
	for (unsigned round = 0; round < rounds; round++) {
		for (unsigned i = 0; i < N_KINDS + 1; i++) {
			unsigned k = (i + round) % (N_KINDS + 1);

			if (k == N_KINDS) {
				bare(x);
				continue;
			}
			put_all(x, k);
			demote(x, k);
			promote(x, k);
			measure_end_round(&x->demote[k]);
			measure_end_round(&x->promote[k]);
		}
		measure_end_round(&x->bare_write);
		measure_end_round(&x->bare_read);
	}
}

/* ---- the report ------------------------------------------------------------------------------ */

static void rate(struct report *r, const struct scene *x, const char *what,
		 const struct measure_series *s)
{
	struct measure_stat stat = measure_stat(s);

	report_note(r, "%s: %.0f MB/s (%.0f to %.0f)", what, (double)x->total * 1e3 / stat.median,
		    (double)x->total * 1e3 / stat.max, (double)x->total * 1e3 / stat.min);
}

static void report_all(struct report *r, struct scene *x)
{
	char what[128];

	report_row(r, "disk", "write", "bare", x->total, &x->bare_write);
	report_row(r, "disk", "read", "bare", x->total, &x->bare_read);
	rate(r, x, "bare writes", &x->bare_write);
	rate(r, x, "bare reads", &x->bare_read);
	for (unsigned k = 0; k < N_KINDS; k++) {
		report_row(r, "disk", "demote", KINDS[k], x->total, &x->demote[k]);
		report_row(r, "disk", "promote", KINDS[k], x->total, &x->promote[k]);
		snprintf(what, sizeof(what), "demotion of %s", KINDS[k]);
		rate(r, x, what, &x->demote[k]);
		report_ratio(r, "10a", what, "x bare writes", REPORT_AT_LEAST, TARGETS[k],
			     &x->bare_write, &x->demote[k]);
		snprintf(what, sizeof(what), "promotion of %s", KINDS[k]);
		rate(r, x, what, &x->promote[k]);
		report_note(r, "%s: %.3f of the bytes are written", KINDS[k],
			    (double)x->written[k] / (double)x->total);
	}
}

static void open_scene(struct scene *x)
{
	struct shmstore_tier_config config = SHMSTORE_TIER_CONFIG_INIT;
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	uint64_t size = x->total + 512 * MIB;
	char partition[128];
	int e = place_open_mount(&x->memory, size, 0);

	if (e < 0)
		errx(1, "a tmpfs of its own is needed, for root: %s", strerror(-e));
	e = place_open_disk(&x->disk);
	if (e < 0)
		errx(1, "no directory on disk ($SHMSTORE_BENCH_DISK): %s", strerror(-e));
	e = place_warm(&x->memory, size);
	if (e < 0)
		errx(1, "warm: %s", strerror(-e));
	if (posix_memalign((void **)&x->chunk, 4096, CHUNK))
		errx(1, "no memory");
	snprintf(partition, sizeof(partition), "%s/partition", x->memory.path);
	must(shmstore_partition_open(partition, SHMSTORE_CREATE, &x->p), partition);
	config.path = x->disk.path;
	must(shmstore_tier_set(x->p, &config), "tier");
	options.pack_max = 0; /* an eviction reports files alone */
	must(shmstore_open(x->p, "bench", &options, &x->s), "store");
}

static void close_scene(struct scene *x)
{
	shmstore_close(x->s);
	shmstore_partition_unref(x->p);
	place_close(&x->memory);
	place_close(&x->disk);
	measure_deinit(&x->bare_write);
	measure_deinit(&x->bare_read);
	for (unsigned k = 0; k < N_KINDS; k++) {
		measure_deinit(&x->demote[k]);
		measure_deinit(&x->promote[k]);
		munmap(x->data[k], LARGE + SHIFTS * 8ull);
	}
	free(x->chunk);
}

int main(int argc, char **argv)
{
	static struct scene x;
	struct report_options options;
	struct report *r = report_new(argc, argv, "bench_tier",
				      "does demotion keep up with the disk?", &options);
	int status;

	if (!r)
		errx(1, "no memory");
	x.total = options.limit   ? options.limit / LARGE * LARGE
		  : options.quick ? 1024 * MIB
				  : 4096 * MIB;
	if (!x.total)
		errx(2, "--limit: at least 64 MiB");
	open_scene(&x);
	make_data(&x);
	measure(&x, options.rounds);
	report_note(r, "%llu MiB at a time, %u worker threads", x.total / MIB, N_THREADS);
	report_all(r, &x);
	close_scene(&x);
	status = report_print(r);
	report_free(r);
	return status;
}
