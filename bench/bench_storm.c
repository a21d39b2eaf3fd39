/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_storm.c: how long does a call take at worst, when all that is stored does not fit?
 *
 * Two processes with 32 threads each put, get, demote and delete objects of 4 to 512 KB, twice as
 * many bytes as the partition has, over a disk tier: so each put evicts, or waits for one that
 * does. Each process has two stores, and some objects are in both, so that to demote them takes the
 * lock of the user's evictions. A round's figure is its longest call.
 */
#include <err.h>
#include <errno.h>
#include <pthread.h>
#include <shmstore/shmstore.h>
#include <stdatomic.h>
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

#define MIB       (1024ull * 1024)
#define PROCESSES 2u
#define THREADS   32u
#define KEYS      20u
#define LARGEST   (512 * 1024u)
#define PARTITION (64 * MIB)

enum call {
	PUT,
	GET,
	DEMOTE,
	DELETE,
	N_CALLS
};

static const char *const CALLS[N_CALLS] = {"put", "get", "demote", "delete"};

/* Of one thread and round. */
struct times {
	uint64_t longest[N_CALLS], sum[N_CALLS], n[N_CALLS], n_failed[N_CALLS];
	int error[N_CALLS];
	char words[N_CALLS][256];
};

struct shared {
	_Atomic uint64_t until_ns;
	struct times times[PROCESSES][THREADS];
};

struct scene {
	struct place memory, disk;
	char partition[128];
	struct shared *shared;
	const char *data;
};

/* Of one process. */
struct worker {
	const struct scene *x;
	struct shmstore *s, *other;
	unsigned process, number;
	uint64_t random;
};

static void must(int r, const char *what)
{
	if (r < 0)
		errx(1, "%s: %s %s", what, shmstore_strerror(r), shmstore_error_detail());
}

static unsigned pick(struct worker *w, unsigned n)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return (unsigned)(w->random % n);
}

static int touch(struct worker *w, const char *key, size_t size)
{
	struct shmstore_view *view;
	int r = shmstore_get(w->s, key, size, 0, &view);

	if (r < 0)
		return r;
	shmstore_view_unref(view);
	return 0;
}

/* Into the process's other store, too. */
static void share(struct worker *w, const char *key, size_t size)
{
	struct shmstore_ticket ticket;

	if (shmstore_handoff(w->s, key, size, 10000, &ticket) == 0)
		(void)shmstore_adopt(w->other, key, size, &ticket, SHMSTORE_REPLACE);
}

static int one_call(struct worker *w, enum call call, const char *key, size_t size)
{
	uint64_t bytes = pick(w, 4) ? 4000 + pick(w, 60000) : 4000 + pick(w, LARGEST - 4000);
	struct iovec buffer = {(void *)(uintptr_t)(w->x->data + 8ull * pick(w, 512)), bytes};

	if (call == PUT)
		return shmstore_put(w->s, key, size, "", 0, &buffer, 1, SHMSTORE_REPLACE);
	if (call == GET)
		return touch(w, key, size);
	return call == DEMOTE ? shmstore_demote(w->s, key, size, 0)
			      : shmstore_delete(w->s, key, size);
}

static void timed(struct worker *w, enum call call)
{
	struct times *t = &w->x->shared->times[w->process][w->number];
	char key[32];
	size_t size = (size_t)snprintf(key, sizeof(key), "%u-%u", w->number, pick(w, KEYS));
	uint64_t begin = measure_now_ns(), ns;
	int r = one_call(w, call, key, size);

	ns = measure_now_ns() - begin;
	t->n[call]++;
	t->sum[call] += ns;
	if (ns > t->longest[call])
		t->longest[call] = ns;
	/* The object is leased for a moment, or was never put. */
	if (r < 0 && r != -ENOENT && r != -EPERM) {
		t->n_failed[call]++;
		t->error[call] = r;
		snprintf(t->words[call], sizeof(t->words[call]), "%s", shmstore_error_detail());
	}
	if (call == PUT && r == 0 && pick(w, 8) == 0)
		share(w, key, size);
	if (call == DELETE)
		(void)shmstore_delete(w->other, key, size);
}

static void *work(void *arg)
{
	static const enum call calls[] = {PUT, PUT, PUT, PUT, GET, GET, GET, GET, DEMOTE, DELETE};
	struct worker *w = arg;

	while (measure_now_ns() < atomic_load(&w->x->shared->until_ns))
		timed(w, calls[pick(w, sizeof(calls) / sizeof(*calls))]);
	return NULL;
}

static int process(const struct scene *x, unsigned number)
{
	static struct worker w[THREADS];
	pthread_t threads[THREADS];
	struct shmstore_partition *p;
	struct shmstore *s[2];
	char name[16];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	must(shmstore_partition_open(x->partition, 0, &p), x->partition);
	for (unsigned i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "s%u-%u", number, i);
		must(shmstore_open(p, name, NULL, &s[i]), name);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		w[i] = (struct worker){x,    s[0],
				       s[1], number,
				       i,    (number * THREADS + i + 1) * 0x9e3779b97f4a7c15ull};
		if (pthread_create(&threads[i], NULL, work, &w[i]) != 0)
			errx(1, "no thread");
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	must(shmstore_close(s[0]), "close");
	must(shmstore_close(s[1]), "close");
	shmstore_partition_unref(p);
	return 0;
}

static void run_round(const struct scene *x, double seconds)
{
	pid_t pids[PROCESSES];
	int status;

	memset(x->shared->times, 0, sizeof(x->shared->times));
	atomic_store(&x->shared->until_ns, measure_now_ns() + (uint64_t)(seconds * 1e9));
	for (unsigned i = 0; i < PROCESSES; i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			_exit(process(x, i));
		if (pids[i] < 0)
			err(1, "fork");
	}
	for (unsigned i = 0; i < PROCESSES; i++) {
		if (waitpid(pids[i], &status, 0) < 0 || status != 0)
			errx(1, "a process failed");
	}
}

static void report_round(struct report *r, const struct scene *x, struct measure_series *series,
			 unsigned round)
{
	for (unsigned call = 0; call < N_CALLS; call++) {
		uint64_t longest = 0, n = 0, n_failed = 0, sum = 0;
		const struct times *failed = NULL;

		for (unsigned i = 0; i < PROCESSES * THREADS; i++) {
			const struct times *t = &x->shared->times[i / THREADS][i % THREADS];

			longest = t->longest[call] > longest ? t->longest[call] : longest;
			n += t->n[call];
			sum += t->sum[call];
			n_failed += t->n_failed[call];
			failed = t->n_failed[call] ? t : failed;
		}
		measure_add(&series[call], longest);
		measure_end_round(&series[call]);
		report_note(r, "round %u: %llu of %s, %.2f ms on average, %llu failed%s%s: %s",
			    round, (unsigned long long)n, CALLS[call],
			    n ? (double)sum / (double)n / 1e6 : 0.0, (unsigned long long)n_failed,
			    failed ? ", " : "",
			    failed ? shmstore_strerror(failed->error[call]) : "",
			    failed ? failed->words[call] : "");
	}
}

static void open_scene(struct scene *x)
{
	struct shmstore_tier_config config = SHMSTORE_TIER_CONFIG_INIT;
	struct shmstore_partition *p;
	int e = place_open_mount(&x->memory, PARTITION, 0);

	if (e < 0)
		errx(1, "a tmpfs of its own is needed, for root: %s", strerror(-e));
	e = place_open_disk(&x->disk);
	if (e < 0)
		errx(1, "no directory on disk ($SHMSTORE_BENCH_DISK): %s", strerror(-e));
	x->data = measure_memory(LARGEST + 4096);
	x->shared = mmap(NULL, sizeof(*x->shared), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!x->data || x->shared == MAP_FAILED)
		errx(1, "no memory");
	snprintf(x->partition, sizeof(x->partition), "%s/partition", x->memory.path);
	must(shmstore_partition_open(x->partition, SHMSTORE_CREATE, &p), x->partition);
	config.path = x->disk.path;
	must(shmstore_tier_set(p, &config), "tier");
	shmstore_partition_unref(p);
}

int main(int argc, char **argv)
{
	static struct scene x;
	static struct measure_series series[N_CALLS];
	struct report_options options;
	struct report *r = report_new(
		argc, argv, "bench_storm",
		"The longest calls of 2 processes with 32 threads each over a disk tier.",
		&options);
	char what[64];
	int status;

	if (!r)
		errx(1, "no memory");
	open_scene(&x);
	setenv("SHMSTORE_DAEMON", "off", 1);
	for (unsigned round = 0; round < (options.quick ? 1 : options.rounds); round++) {
		run_round(&x, options.quick ? 5 : 10);
		report_round(r, &x, series, round);
	}
	for (unsigned call = 0; call < N_CALLS; call++) {
		struct measure_stat stat = measure_stat(&series[call]);

		report_row(r, x.memory.label, CALLS[call], "longest", 0, &series[call]);
		snprintf(what, sizeof(what), "the longest %s of 2 x 32 threads over a tier",
			 CALLS[call]);
		report_target(r, &(struct report_target){.id = "10d",
							 .what = what,
							 .unit = "ms",
							 .relation = REPORT_AT_MOST,
							 .target = 250,
							 .value = stat.median / 1e6,
							 .min = stat.min / 1e6,
							 .max = stat.max / 1e6});
		measure_deinit(&series[call]);
	}
	status = report_print(r);
	report_free(r);
	place_close(&x.memory);
	place_close(&x.disk);
	return status;
}
