/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_evict.c: who is disturbed by an eviction?
 *
 * A store holds 2 GiB that nobody uses, and its owner goes on: it puts, gets and deletes other
 * objects of 64 KiB and 1 MiB in the same store, back to back, each call timed by itself. In
 * each round it does so three times, in changing order: with nothing else going on; while a
 * process without a library copies those 2 GiB to the same disk (O_DIRECT, 4 MiB at a time: what
 * any program costs that writes as much, the floor); and while shmstore_partition_evict()
 * demotes them. Both of these read and write at idle priority, in a process of their own, as
 * shmstored runs an eviction. A round's figure is its 99th percentile, so the ratio says what a
 * caller notices of an eviction.
 *
 * Nothing is compressible, nothing was demoted before: everything is written each time.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"
#include "place.h"
#include "report.h"

#define MIB     (1024ull * 1024)
#define COLD    (16 * MIB) /* an object that is demoted */
#define CHUNK   (4 * MIB)  /* a write of the floor */
#define HOT     32         /* objects that are got */
#define P99     0.99
#define QUIET_S 2.0

enum mode {
	QUIET,
	BARE,
	EVICTION,
	N_MODES
};
enum call {
	PUT_SMALL,
	PUT_LARGE,
	GET,
	DELETE,
	N_CALLS
};

static const char *const MODES[N_MODES] = {"nothing else", "bare writes of as much", "eviction"};
static const char *const CALLS[N_CALLS] = {"put", "put", "get", "delete"};
static const uint64_t SIZES[N_CALLS] = {64 * 1024, MIB, MIB, 64 * 1024};

struct scene {
	struct place memory, disk;
	struct shmstore_partition *p;
	struct shmstore *s;
	char partition[128];
	/* COLD bytes and a page: each object begins elsewhere, none is like another */
	const char *data;
	unsigned n_cold;
	struct measure_series series[N_MODES][N_CALLS];
	double longest[N_MODES], seconds[N_MODES]; /* seconds: of the last round */
	uint64_t n_longer[N_MODES], n_calls[N_MODES];
};

static void must(int r, const char *what)
{
	if (r < 0)
		errx(1, "%s: %s %s", what, shmstore_strerror(r), shmstore_error_detail());
}

static int put(struct scene *x, const char *name, unsigned i, uint64_t size)
{
	struct iovec buffer = {(void *)(uintptr_t)(x->data + 8ull * (i % 512)), size};
	char key[32];
	int n = snprintf(key, sizeof(key), "%s%u", name, i);

	return shmstore_put(x->s, key, (size_t)n, &i, sizeof(i), &buffer, 1, SHMSTORE_NO_EVICT);
}

static int drop(struct scene *x, const char *name, unsigned i)
{
	char key[32];
	int n = snprintf(key, sizeof(key), "%s%u", name, i);

	return shmstore_delete(x->s, key, (size_t)n);
}

static int get(struct scene *x, const char *name, unsigned i, struct shmstore_view **ret)
{
	char key[32];
	int n = snprintf(key, sizeof(key), "%s%u", name, i);

	return shmstore_get(x->s, key, (size_t)n, 0, ret);
}

/* ---- the other process ----------------------------------------------------------------------- */

static void copy_object(const char *directory, int disk_fd, unsigned i, void *chunk,
			off_t *io_offset)
{
	char path[256];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/cold%u", directory, i);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		err(1, "%s", path);
	for (off_t at = 0; (n = pread(fd, chunk, CHUNK, at)) > 0; at += n) {
		size_t padded = ((size_t)n + 4095) & ~(size_t)4095;

		if (pwrite(disk_fd, chunk, padded, *io_offset) != (ssize_t)padded)
			err(1, "write to the disk");
		*io_offset += (off_t)padded;
	}
	close(fd);
}

static int write_bare(const struct scene *x, const char *directory)
{
	void *chunk = aligned_alloc(4096, CHUNK);
	off_t offset = 0;
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/bare", x->disk.path);
	fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_DIRECT | O_CLOEXEC, 0600);
	if (fd < 0 || !chunk)
		err(1, "%s", path);
	for (unsigned i = 0; i < x->n_cold; i++)
		copy_object(directory, fd, i, chunk, &offset);
	close(fd);
	unlink(path);
	free(chunk);
	return 0;
}

static int evict(const struct scene *x)
{
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	struct shmstore_evict_report report;
	struct shmstore_partition *p;
	int r;

	must(shmstore_partition_open(x->partition, 0, &p), x->partition);
	what.bytes = x->n_cold * COLD;
	what.n_threads = 2;
	what.background = true;
	r = shmstore_partition_evict(p, &what, &report);
	if (r != 1 || report.freed < what.bytes || report.written < what.bytes ||
	    report.n_objects != x->n_cold)
		errx(1, "eviction: %s %s: %llu objects, %llu bytes freed, %llu written",
		     shmstore_strerror(r), shmstore_error_detail(),
		     (unsigned long long)report.n_objects, (unsigned long long)report.freed,
		     (unsigned long long)report.written);
	shmstore_partition_unref(p);
	return 0;
}

static pid_t start_other(const struct scene *x, enum mode mode)
{
	const struct sched_param none = {0};
	char directory[192];
	pid_t pid = fork();

	if (pid < 0)
		err(1, "fork");
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	measure_unpin();
	/* The eviction's worker threads do that themselves. */
	if (mode == BARE && sched_setscheduler(0, SCHED_IDLE, &none) < 0)
		err(1, "idle priority");
	snprintf(directory, sizeof(directory), "%s/stores/bench/objects", x->partition);
	_exit(mode == BARE ? write_bare(x, directory) : evict(x));
}

/* ---- the owner ------------------------------------------------------------------------------- */

static void timed(struct scene *x, enum mode mode, enum call call, uint64_t begin, int r)
{
	double ns = (double)(measure_now_ns() - begin);

	must(r, CALLS[call]);
	measure_add(&x->series[mode][call], (uint64_t)ns);
	if (ns > x->longest[mode])
		x->longest[mode] = ns;
	x->n_longer[mode] += ns > 5e6;
	x->n_calls[mode]++;
}

static void one_turn(struct scene *x, enum mode mode, unsigned turn)
{
	struct shmstore_view *view;
	uint64_t t = measure_now_ns();

	timed(x, mode, PUT_SMALL, t, put(x, "small", turn, SIZES[PUT_SMALL]));
	t = measure_now_ns();
	timed(x, mode, PUT_LARGE, t, put(x, "large", turn, SIZES[PUT_LARGE]));
	t = measure_now_ns();
	timed(x, mode, GET, t, get(x, "hot", turn % HOT, &view));
	shmstore_view_unref(view);
	t = measure_now_ns();
	timed(x, mode, DELETE, t, drop(x, "small", turn));
	must(drop(x, "large", turn), "delete");
}

static void run_mode(struct scene *x, enum mode mode)
{
	uint64_t begin = measure_now_ns();
	pid_t pid = mode == QUIET ? 0 : start_other(x, mode);
	int status = 0;

	for (unsigned turn = 0;; turn++) {
		one_turn(x, mode, turn);
		if (turn % 16)
			continue;
		if (!pid && (double)(measure_now_ns() - begin) > QUIET_S * 1e9)
			break;
		if (pid && waitpid(pid, &status, WNOHANG) == pid)
			break;
	}
	if (pid && status != 0)
		errx(1, "%s: the other process failed", MODES[mode]);
	x->seconds[mode] = (double)(measure_now_ns() - begin) / 1e9;
	for (unsigned call = 0; call < N_CALLS; call++)
		measure_end_round_at(&x->series[mode][call], P99);
}

/* The cold objects are new each time: a tier file that was written once
 * would not be written again. */
static void renew_cold(struct scene *x, bool first)
{
	for (unsigned i = 0; i < x->n_cold; i++) {
		if (!first)
			must(drop(x, "cold", i), "delete");
		must(put(x, "cold", i, COLD), "put");
	}
	/* And the ones in use are the youngest. */
	for (unsigned i = 0; i < HOT; i++) {
		struct shmstore_view *view;

		must(get(x, "hot", i, &view), "get");
		shmstore_view_unref(view);
	}
}

static void measure(struct scene *x, unsigned rounds)
{
	for (unsigned i = 0; i < HOT; i++)
		must(put(x, "hot", i, SIZES[GET]), "put");
	for (unsigned i = 0; i < 500; i++)
		one_turn(x, QUIET, i);
	for (unsigned call = 0; call < N_CALLS; call++)
		measure_deinit(&x->series[QUIET][call]); /* those were to warm up */
	x->longest[QUIET] = 0;
	x->n_longer[QUIET] = x->n_calls[QUIET] = 0;
	for (unsigned round = 0; round < rounds; round++) {
		for (unsigned k = 0; k < N_MODES; k++) {
			enum mode mode = (k + round) % N_MODES;

			/* Before each, for the kernel's sake: fresh memory costs alike in all. */
			renew_cold(x, round + k == 0);
			run_mode(x, mode);
		}
	}
}

/* ---- the report ------------------------------------------------------------------------------ */

static void report_calls(struct report *r, struct scene *x)
{
	char text[16], what[128];

	for (unsigned call = 0; call < N_CALLS; call++) {
		for (unsigned mode = 0; mode < N_MODES; mode++)
			report_row(r, x->memory.label, CALLS[call], MODES[mode], SIZES[call],
				   &x->series[mode][call]);
		if (call == DELETE)
			continue;
		report_size(SIZES[call], text, sizeof(text));
		snprintf(what, sizeof(what), "p99 of %s of %s during an eviction", CALLS[call],
			 text);
		report_ratio(r, "10b", what, "x without", REPORT_AT_MOST, 2.0,
			     &x->series[EVICTION][call], &x->series[QUIET][call]);
	}
}

static void report_longest(struct report *r, const struct scene *x)
{
	for (unsigned mode = 0; mode < N_MODES; mode++) {
		report_note(r,
			    "%s: of %llu calls the longest took %.2f ms, %llu more than 5 ms; the "
			    "last round took %.2f s",
			    MODES[mode], (unsigned long long)x->n_calls[mode],
			    x->longest[mode] / 1e6, (unsigned long long)x->n_longer[mode],
			    x->seconds[mode]);
	}
	report_target(r, &(struct report_target){
				 .id = "10c",
				 .what = "the longest put, get or delete during an eviction",
				 .unit = "ms",
				 .relation = REPORT_AT_MOST,
				 .target = 5,
				 .value = x->longest[EVICTION] / 1e6});
}

static void open_scene(struct scene *x)
{
	struct shmstore_tier_config config = SHMSTORE_TIER_CONFIG_INIT;
	uint64_t size = x->n_cold * COLD + 512 * MIB;
	int e = place_open_mount(&x->memory, size, 0);

	if (e < 0)
		errx(1, "a tmpfs of its own is needed, for root: %s", strerror(-e));
	e = place_open_disk(&x->disk);
	if (e < 0)
		errx(1, "no directory on disk ($SHMSTORE_BENCH_DISK): %s", strerror(-e));
	e = place_warm(&x->memory, size);
	if (e < 0)
		errx(1, "warm: %s", strerror(-e));
	x->data = measure_memory(COLD + 4096);
	if (!x->data)
		errx(1, "no memory");
	snprintf(x->partition, sizeof(x->partition), "%s/partition", x->memory.path);
	must(shmstore_partition_open(x->partition, SHMSTORE_CREATE, &x->p), x->partition);
	config.path = x->disk.path;
	must(shmstore_tier_set(x->p, &config), "tier");
	must(shmstore_open(x->p, "bench", NULL, &x->s), "store");
}

int main(int argc, char **argv)
{
	static struct scene x;
	struct report_options options;
	struct report *r =
		report_new(argc, argv, "bench_evict", "who is disturbed by an eviction?", &options);
	int status;

	if (!r)
		errx(1, "no memory");
	x.n_cold = options.quick ? 32 : 128;
	open_scene(&x);
	measure_pin(options.cpu);
	measure(&x, options.rounds);
	report_note(r,
		    "%llu MiB in objects of 16 MiB are demoted in each round; figures are 99th "
		    "percentiles",
		    x.n_cold * COLD / MIB);
	report_calls(r, &x);
	report_longest(r, &x);
	shmstore_close(x.s);
	shmstore_partition_unref(x.p);
	place_close(&x.memory);
	place_close(&x.disk);
	for (unsigned mode = 0; mode < N_MODES; mode++)
		for (unsigned call = 0; call < N_CALLS; call++)
			measure_deinit(&x.series[mode][call]);
	munmap((void *)(uintptr_t)x.data, COLD + 4096);
	status = report_print(r);
	report_free(r);
	return status;
}
