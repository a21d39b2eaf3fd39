/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_readers.c: is a store read by name as fast as by its owner?
 *
 * A store of 1,000, 100,000 and 1,000,000 objects of 100 bytes, and two handles: the owner's, and
 * one that was opened to be read. Each gets keys at random, and looks for keys that are not
 * there, in turns. The floor is an open, fstat and close of a file, which is what a look without
 * an index begins with. Then 5,000 objects are listed and got, one after the other; and another
 * process waits for a key: from before the put to the moment when the waiting process has the
 * view, on two CPUs. At last, what memory 100,000 objects of 1 KiB take with that of 8 processes
 * that have read all of them by name.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <shmstore/shmstore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"
#include "place.h"
#include "report.h"

#define SIZE      100u
#define N_LIST    5000u
#define N_WAITS   200u
#define BATCH     1000u /* gets that are timed together */
#define LIST_S    0.05
#define WAKE_US   100.0
#define ALLOWANCE 200.0 /* ns */
#define N_STORED  100000u
#define STORED    ((size_t)1024)
#define N_READERS 8u
#define MEMORY    1.15 /* x bytes stored */

struct side {
	struct shmstore *s;
	unsigned n;
	uint32_t dice;
	uint64_t ns; /* of one operation of the batch */
	const char *path;
};

static uint32_t roll(struct side *x)
{
	x->dice = x->dice * 1664525 + 1013904223;
	return (x->dice >> 8) % x->n;
}

static size_t key_of(char *key, unsigned i)
{
	return (size_t)sprintf(key, "k%u", i);
}

static int get_batch(void *arg)
{
	struct side *x = arg;
	uint64_t begin = measure_now_ns();

	for (unsigned i = 0; i < BATCH; i++) {
		struct shmstore_view *v;
		char key[16];
		size_t size = key_of(key, roll(x));
		int r = shmstore_get(x->s, key, size, 0, &v);

		if (r < 0)
			return r;
		shmstore_view_unref(v);
	}
	x->ns = (measure_now_ns() - begin) / BATCH;
	return 0;
}

static int miss_batch(void *arg)
{
	struct side *x = arg;
	uint64_t begin = measure_now_ns();

	for (unsigned i = 0; i < BATCH; i++) {
		char key[16];
		size_t size = (size_t)sprintf(key, "none%u", roll(x));
		int r = shmstore_contains(x->s, key, size);

		if (r != 0)
			return r < 0 ? r : -EEXIST;
	}
	x->ns = (measure_now_ns() - begin) / BATCH;
	return 0;
}

static int bare_batch(void *arg)
{
	struct side *x = arg;
	uint64_t begin = measure_now_ns();

	for (unsigned i = 0; i < BATCH; i++) {
		struct stat st;
		int fd = open(x->path, O_RDONLY | O_CLOEXEC);

		if (fd < 0 || fstat(fd, &st) < 0)
			return -errno;
		close(fd);
	}
	x->ns = (measure_now_ns() - begin) / BATCH;
	return 0;
}

static struct shmstore *open_store(struct shmstore_partition *p, unsigned flags)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s;
	int r;

	o.flags = flags;
	o.daemon = SHMSTORE_DAEMON_OFF;
	r = shmstore_open(p, "producer", &o, &s);
	if (r < 0)
		errx(1, "the store cannot be opened: %s", shmstore_strerror(r));
	return s;
}

static void fill(struct shmstore *s, unsigned n)
{
	char data[SIZE] = "", key[16];
	struct iovec buffer = {data, SIZE};

	for (unsigned i = 0; i < n; i++) {
		int r = shmstore_put(s, key, key_of(key, i), NULL, 0, &buffer, 1, 0);

		if (r < 0)
			errx(1, "put %u: %s", i, shmstore_strerror(r));
	}
}

/* reader at most twice the owner's time, and 0.2 us. */
static void compare(struct report *report, const char *what, unsigned n,
		    const struct measure_series *reader, const struct measure_series *owner)
{
	double ours = measure_stat(reader).median, theirs = measure_stat(owner).median;
	char words[120];

	snprintf(words, sizeof(words), "%s by a reader beside %u objects, the owner takes %.3f us",
		 what, n, theirs / 1e3);
	report_target(report, &(struct report_target){.id = "r1",
						      .what = words,
						      .unit = "us",
						      .relation = REPORT_AT_MOST,
						      .value = ours / 1e3,
						      .target = (2 * theirs + ALLOWANCE) / 1e3});
}

static void with_objects(struct report *report, const struct report_options *options,
			 struct shmstore_partition *p, unsigned n)
{
	struct shmstore *owner = open_store(p, 0), *reader = open_store(p, SHMSTORE_OPEN_READONLY);
	char where[40], path[300];
	struct side sides[5] = {{owner, n, 1, 0, NULL},
				{reader, n, 1, 0, NULL},
				{owner, n, 2, 0, NULL},
				{reader, n, 2, 0, NULL},
				{NULL, n, 0, 0, path}};
	static const char *const names[] = {"owner", "reader", "owner", "reader",
					    "bare open, fstat, close"};
	struct contender c[5];
	int r;

	fill(owner, n);
	snprintf(path, sizeof(path), "%s/.store", shmstore_path(owner));
	for (size_t i = 0; i < 5; i++)
		c[i] = (struct contender){.operation = i < 2   ? "get"
						       : i < 4 ? "contains, missing"
							       : "floor",
					  .variant = names[i],
					  .run = i < 2   ? get_batch
						 : i < 4 ? miss_batch
							 : bare_batch,
					  .arg = &sides[i],
					  .own_ns = &sides[i].ns};
	r = measure_contenders(c, 5, options->rounds, 10, 2, NULL);
	if (r < 0)
		errx(1, "%u objects: %s", n, shmstore_strerror(r));
	snprintf(where, sizeof(where), "%u objects", n);
	for (size_t i = 0; i < 5; i++)
		report_row(report, where, c[i].operation, c[i].variant, SIZE, &c[i].series);
	compare(report, "get", n, &c[1].series, &c[0].series);
	compare(report, "contains of a missing key", n, &c[3].series, &c[2].series);
	for (size_t i = 0; i < 5; i++)
		measure_deinit(&c[i].series);
	shmstore_close(reader);
	shmstore_close(owner);
}

/* ---- a list ---------------------------------------------------------------------------------- */

struct list {
	struct shmstore *s;
	unsigned n;
};

static int get_one(const struct shmstore_object_info *info, void *arg)
{
	struct list *l = arg;
	struct shmstore_view *v;
	int r = shmstore_get(l->s, info->key, info->key_size, 0, &v);

	if (r == 0)
		shmstore_view_unref(v);
	l->n++;
	return r;
}

static int list_all(void *arg)
{
	struct list *l = arg;
	int r;

	l->n = 0;
	r = shmstore_foreach(l->s, get_one, l);
	return r < 0 ? r : l->n == N_LIST ? 0 : -ENOENT;
}

static void list(struct report *report, const struct report_options *options,
		 struct shmstore_partition *p)
{
	struct shmstore *owner = open_store(p, 0), *reader = open_store(p, SHMSTORE_OPEN_READONLY);
	struct list lists[2] = {{.s = owner}, {.s = reader}};
	struct contender c[2] = {{.operation = "list and get",
				  .variant = "owner",
				  .run = list_all,
				  .arg = &lists[0]},
				 {.operation = "list and get",
				  .variant = "reader",
				  .run = list_all,
				  .arg = &lists[1]}};
	int r;

	fill(owner, N_LIST);
	r = measure_contenders(c, 2, options->rounds, 3, 1, NULL);
	if (r < 0)
		errx(1, "list: %s", shmstore_strerror(r));
	for (size_t i = 0; i < 2; i++)
		report_row(report, "5000 objects", c[i].operation, c[i].variant, 0, &c[i].series);
	report_target(report, &(struct report_target){
				      .id = "r2",
				      .what = "all of 5,000 objects listed and got by a reader",
				      .unit = "s",
				      .relation = REPORT_AT_MOST,
				      .value = measure_stat(&c[1].series).median / 1e9,
				      .target = LIST_S});
	for (size_t i = 0; i < 2; i++)
		measure_deinit(&c[i].series);
	shmstore_close(reader);
	shmstore_close(owner);
}

/* ---- a wait ---------------------------------------------------------------------------------- */

struct shared {
	_Atomic uint32_t waiting, got;
	_Atomic uint64_t at_ns;
};

static void wait_for_keys(struct shmstore_partition *p, struct shared *m, int cpu)
{
	cpu_set_t set;
	struct shmstore *s = open_store(p, SHMSTORE_OPEN_READONLY);

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	(void)sched_setaffinity(0, sizeof(set), &set);
	for (uint32_t i = 0;; i++) {
		struct shmstore_view *v;
		char key[16];
		size_t size = key_of(key, i);

		m->waiting = i + 1;
		if (shmstore_wait(s, key, size, 0, 10000) < 0 ||
		    shmstore_get(s, key, size, 0, &v) < 0)
			_exit(1);
		m->at_ns = measure_now_ns();
		m->got = i + 1;
		shmstore_view_unref(v);
	}
}

static void waits(struct report *report, const struct report_options *options,
		  struct shmstore_partition *p, int cpu)
{
	struct shared *m =
		mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct shmstore *owner = open_store(p, 0);
	struct measure_series series = {0};
	char data[SIZE] = "", key[16];
	struct iovec buffer = {data, SIZE};
	pid_t pid;

	if (m == MAP_FAILED)
		err(1, "mmap");
	pid = fork();
	if (pid == 0)
		wait_for_keys(p, m, cpu == 0 ? 1 : 0);
	for (uint32_t i = 0; i < options->rounds * N_WAITS / 10; i++) {
		uint64_t begin;
		size_t size = key_of(key, i);

		while (m->waiting <= i)
			sched_yield();
		usleep(2000); /* by then it sleeps */
		begin = measure_now_ns();
		if (shmstore_put(owner, key, size, NULL, 0, &buffer, 1, 0) < 0)
			errx(1, "put while another process waits");
		while (m->got <= i) {
			if (waitpid(pid, NULL, WNOHANG) == pid)
				errx(1, "the process that waits ended");
		}
		measure_add(&series, m->at_ns - begin);
		if (i % 20 == 19)
			measure_end_round(&series);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	report_row(report, "two processes", "put to waiting get", "reader", SIZE, &series);
	report_target(report, &(struct report_target){
				      .id = "r3",
				      .what = "from a put to the get that waited for it, two CPUs",
				      .unit = "us",
				      .relation = REPORT_AT_MOST,
				      .value = measure_stat(&series).median / 1e3,
				      .target = WAKE_US});
	measure_deinit(&series);
	shmstore_close(owner);
	munmap(m, sizeof(*m));
}

/* ---- memory ---------------------------------------------------------------------------------- */

struct crowd {
	_Atomic uint32_t began, done; /* readers */
	_Atomic bool stored;
};

static void read_all(struct shmstore_partition *p, struct crowd *c, unsigned n)
{
	struct shmstore *s;

	c->began++;
	while (!c->stored)
		usleep(1000);
	s = open_store(p, SHMSTORE_OPEN_READONLY);
	for (unsigned i = 0; i < n; i++) {
		struct shmstore_view *v;
		char key[16];

		if (shmstore_get(s, key, key_of(key, i), 0, &v) < 0 ||
		    !shmstore_view_buffer(v, 0, NULL))
			_exit(1);
		shmstore_view_unref(v);
	}
	c->done++;
	pause(); /* for the look at its memory */
}

static void wait_for_readers(const _Atomic uint32_t *n)
{
	while (*n < N_READERS) {
		usleep(1000);
		if (waitpid(-1, NULL, WNOHANG) > 0)
			errx(1, "a process that reads ended");
	}
}

static uint64_t memory_of(const struct place *place, const pid_t *pids)
{
	uint64_t bytes = place_used(place) + measure_private(getpid());

	for (unsigned i = 0; i < N_READERS; i++)
		bytes += measure_private(pids[i]);
	return bytes;
}

static void memory(struct report *report, const struct report_options *options,
		   struct shmstore_partition *p, const struct place *place)
{
	struct crowd *c =
		mmap(NULL, sizeof(*c), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned n = options->quick ? N_STORED / 5 : N_STORED;
	char key[16], *data = measure_memory(STORED);
	struct iovec buffer = {data, STORED};
	pid_t pids[N_READERS];
	struct shmstore *owner;
	uint64_t before;

	if (c == MAP_FAILED || !data)
		err(1, "mmap");
	for (unsigned i = 0; i < N_READERS; i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			read_all(p, c, n);
	}
	wait_for_readers(&c->began);
	before = memory_of(place, pids);
	owner = open_store(p, 0);
	for (unsigned i = 0; i < n; i++) {
		if (shmstore_put(owner, key, key_of(key, i), NULL, 0, &buffer, 1, 0) < 0)
			errx(1, "put %u", i);
	}
	c->stored = true;
	wait_for_readers(&c->done);
	report_target(
		report,
		&(struct report_target){
			.id = "r4",
			.what = "memory, 8 processes that have read all objects, 1 KiB",
			.unit = "x bytes stored",
			.relation = REPORT_AT_MOST,
			.value = (double)(memory_of(place, pids) - before) / ((double)n * STORED),
			.target = MEMORY});
	for (unsigned i = 0; i < N_READERS; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	shmstore_close(owner);
	munmap(c, sizeof(*c));
}

int main(int argc, char **argv)
{
	static const unsigned numbers[] = {1000, 100000, 1000000};
	struct report_options options;
	struct report *report =
		report_new(argc, argv, "bench_readers",
			   "a store read by name, beside its owner's own gets", &options);
	struct shmstore_partition *p;
	struct place place;
	int cpu, r;

	if (!report)
		err(1, "out of memory");
	cpu = measure_pin(options.cpu);
	if (cpu < 0)
		errx(1, "--cpu %d: %s", options.cpu, strerror(-cpu));
	r = place_open_mount(&place, 2ull << 30, 0);
	if (r < 0 && place_open_devshm(&place) < 0)
		err(1, "no place for the files");
	report_note(report,
		    "on CPU %d, the other process of the wait on another; files on %s, huge=%s; "
		    "--limit: the largest "
		    "number of objects",
		    cpu, place.path, place.huge);
	r = shmstore_partition_open(place.path, SHMSTORE_CREATE, &p);
	if (r < 0)
		errx(1, "%s: %s", place.path, shmstore_strerror(r));
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (numbers[i] <= (options.limit   ? options.limit
				   : options.quick ? 100000
						   : UINT64_MAX))
			with_objects(report, &options, p, numbers[i]);
	}
	list(report, &options, p);
	waits(report, &options, p, cpu);
	memory(report, &options, p, &place);
	shmstore_partition_unref(p);
	place_close(&place);
	r = report_print(report);
	report_free(report);
	return r;
}
