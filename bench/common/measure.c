/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure.c: clock, series, statistics, placement. Single-threaded; a series belongs
 * to the process that fills it.
 *
 * Times are taken per operation, not per batch: one clock_gettime() is 25 ns through the vDSO, and
 * the median of single operations is not moved by the one that another process interrupted.
 * Rejected: the minimum as the figure (it hides what amortises, e.g. trimming a pool) and one long
 * mean (it measures the neighbours).
 */
#include "measure.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

uint64_t measure_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void measure_add(struct measure_series *s, uint64_t ns)
{
	if (s->n_ops == s->ops_size) {
		size_t size = s->ops_size ? s->ops_size * 2 : 256;
		double *ops = realloc(s->ops, size * sizeof(*ops));

		if (!ops)
			return; /* the operation is not counted; the run goes on */
		s->ops = ops;
		s->ops_size = size;
	}
	s->ops[s->n_ops++] = (double)ns;
	s->sum += (double)ns;
	s->n_all++;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double measure_median(double *values, size_t n)
{
	if (n == 0)
		return 0;
	qsort(values, n, sizeof(*values), compare);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

void measure_end_round(struct measure_series *s)
{
	if (s->n_ops > 0 && s->n_rounds < MEASURE_ROUNDS_MAX)
		s->rounds[s->n_rounds++] = measure_median(s->ops, s->n_ops);
	s->n_ops = 0;
}

void measure_end_round_at(struct measure_series *s, double quantile)
{
	if (s->n_ops > 0 && s->n_rounds < MEASURE_ROUNDS_MAX) {
		qsort(s->ops, s->n_ops, sizeof(*s->ops), compare);
		s->rounds[s->n_rounds++] = s->ops[(size_t)(quantile * (double)(s->n_ops - 1))];
	}
	s->n_ops = 0;
}

void measure_deinit(struct measure_series *s)
{
	free(s->ops);
	memset(s, 0, sizeof(*s));
}

static void spread(double *values, size_t n, double *ret_median, double *ret_min, double *ret_max)
{
	*ret_median = measure_median(values, n); /* sorted from here on */
	*ret_min = n ? values[0] : 0;
	*ret_max = n ? values[n - 1] : 0;
}

struct measure_stat measure_stat(const struct measure_series *s)
{
	struct measure_stat stat = {.n_rounds = s->n_rounds, .n_ops = s->n_all};
	double rounds[MEASURE_ROUNDS_MAX];

	memcpy(rounds, s->rounds, s->n_rounds * sizeof(*rounds));
	spread(rounds, s->n_rounds, &stat.median, &stat.min, &stat.max);
	stat.mean = s->n_all ? s->sum / (double)s->n_all : 0;
	return stat;
}

struct measure_ratio measure_ratio(const struct measure_series *a, const struct measure_series *b)
{
	size_t n = a->n_rounds < b->n_rounds ? a->n_rounds : b->n_rounds;
	struct measure_ratio ratio = {0};
	double ratios[MEASURE_ROUNDS_MAX];

	for (size_t i = 0; i < n; i++)
		ratios[i] = b->rounds[i] > 0 ? a->rounds[i] / b->rounds[i] : 0;
	spread(ratios, n, &ratio.median, &ratio.min, &ratio.max);
	return ratio;
}

static int run_once(struct contender *c, bool timed)
{
	uint64_t t0, t1;
	int r = 0;

	if (c->before)
		r = c->before(c->arg);
	if (r < 0)
		return r;
	t0 = measure_now_ns();
	r = c->run(c->arg);
	t1 = measure_now_ns();
	if (r < 0)
		return r;
	if (timed)
		measure_add(&c->series, c->own_ns ? *c->own_ns : t1 - t0);
	if (timed && c->inner_ns)
		measure_add(&c->inner, *c->inner_ns);
	return c->after ? c->after(c->arg) : 0;
}

static int run_round(struct contender *c, size_t n_ops, size_t n_warm)
{
	for (size_t i = 0; i < n_warm + n_ops; i++) {
		int r = run_once(c, i >= n_warm);

		if (r < 0)
			return r;
	}
	measure_end_round(&c->series);
	measure_end_round(&c->inner);
	return 0;
}

/* A contender finds in the caches what the one before it left: it is not always the same one. */
static void shuffle(size_t *order, size_t n, uint32_t *seed)
{
	for (size_t i = n; i > 1; i--) {
		size_t k, last = order[i - 1];

		*seed = *seed * 1664525u + 1013904223u; /* Numerical Recipes' generator */
		k = (*seed >> 8) % i;
		order[i - 1] = order[k];
		order[k] = last;
	}
}

int measure_contenders(struct contender *contenders, size_t n, size_t rounds, size_t n_ops,
		       size_t n_warm, const struct contender **ret_failed)
{
	size_t order[MEASURE_CONTENDERS];
	uint32_t seed = 1;

	if (n > MEASURE_CONTENDERS)
		return -E2BIG;
	for (size_t k = 0; k < n; k++)
		order[k] = k;
	for (size_t round = 0; round < rounds; round++) {
		shuffle(order, n, &seed);
		for (size_t k = 0; k < n; k++) {
			struct contender *c = &contenders[order[k]];
			int r = run_round(c, n_ops, n_warm);

			if (r < 0 && ret_failed)
				*ret_failed = c;
			if (r < 0)
				return r;
		}
	}
	return 0;
}

static cpu_set_t measure_allowed;
static bool measure_allowed_known;

int measure_pin(int cpu)
{
	cpu_set_t one;

	if (!measure_allowed_known) {
		if (sched_getaffinity(0, sizeof(measure_allowed), &measure_allowed) < 0)
			return -errno;
		measure_allowed_known = true;
	}
	if (cpu < 0) {
		for (int i = 0; i < CPU_SETSIZE; i++)
			if (CPU_ISSET((size_t)i, &measure_allowed))
				cpu = i;
	}
	if (cpu < 0 || cpu >= CPU_SETSIZE)
		return -EINVAL;
	CPU_ZERO(&one);
	CPU_SET((size_t)cpu, &one);
	return sched_setaffinity(0, sizeof(one), &one) < 0 ? -errno : cpu;
}

int measure_unpin(void)
{
	if (!measure_allowed_known)
		return 0;
	return sched_setaffinity(0, sizeof(measure_allowed), &measure_allowed) < 0 ? -errno : 0;
}

void *measure_memory(size_t size)
{
	uint64_t x = 0x9e3779b97f4a7c15u;
	uint64_t *p;
	size_t n = (size + 7) / 8;

	p = mmap(NULL, n * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		p[i] = x;
	}
	return p;
}

uint64_t measure_touch(const void *memory, size_t size)
{
	const volatile unsigned char *p = memory; /* volatile: the reads are the point */
	uint64_t sum = 0;

	for (size_t i = 0; i < size; i += 4096)
		sum += p[i];
	return sum;
}

uint64_t measure_private(pid_t pid)
{
	char path[64], line[256];
	unsigned long kib, sum = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "Anonymous: %lu", &kib) == 1)
			sum += kib;
	}
	if (f)
		fclose(f);
	return (uint64_t)sum * 1024;
}
