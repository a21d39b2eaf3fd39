/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure.h: how a benchmark of ours takes time. Contenders are run side by side: in each round
 * every contender does a few operations, one contender after the other, beginning with another one
 * each round, so that the machine's noise hits all alike. A round's figure is the median of its
 * operations; a contender's figure is the median over the rounds, with the lowest and highest round
 * beside it. Ratios are taken within a round and their median is what counts.
 */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MEASURE_ROUNDS_MAX 64u

struct measure_stat {
	double median, min, max; /* over the rounds, ns per operation */
	double mean;             /* over all operations: what the rare expensive ones add */
	size_t n_rounds, n_ops;
};

/* The times of one contender. */
struct measure_series {
	double rounds[MEASURE_ROUNDS_MAX]; /* median of each round, ns */
	size_t n_rounds;
	double *ops; /* of the current round, ns */
	size_t n_ops, ops_size;
	double sum; /* of all operations of all rounds */
	size_t n_all;
};

uint64_t measure_now_ns(void);
void measure_add(struct measure_series *s, uint64_t ns);
/* Ends a round; rounds beyond MEASURE_ROUNDS_MAX are dropped. A round
 * without an operation is none. */
void measure_end_round(struct measure_series *s);
/* The same with a figure that is not the median: the quantile of its operations, 0 to 1. */
void measure_end_round_at(struct measure_series *s, double quantile);
void measure_deinit(struct measure_series *s);
struct measure_stat measure_stat(const struct measure_series *s);
double measure_median(double *values, size_t n); /* sorts them */

struct measure_ratio {
	double median, min, max;
};
/* a / b, round by round. */
struct measure_ratio measure_ratio(const struct measure_series *a, const struct measure_series *b);

/*
 * One thing that is timed. before and after are not timed and may be NULL; all return 0
 * or -errno, which ends the run.
 */
struct contender {
	const char *operation;
	const char *variant;
	int (*before)(void *arg);
	int (*run)(void *arg);
	int (*after)(void *arg);
	void *arg;
	/* NULL, or where run leaves its time, to be taken instead of ours */
	const uint64_t *own_ns;
	const uint64_t *inner_ns; /* NULL, or where run leaves the time of a part of itself */
	struct measure_series series, inner;
};

#define MEASURE_CONTENDERS 64u

/*
 * Runs n contenders, MEASURE_CONTENDERS at most, rounds times n_ops operations each, after
 * n_warm untimed ones, each round in another order. 0 or -errno, then *ret_failed (may be
 * NULL) is the one that failed.
 */
int measure_contenders(struct contender *contenders, size_t n, size_t rounds, size_t n_ops,
		       size_t n_warm, const struct contender **ret_failed);

/* Puts the calling thread on one CPU; -1 = the last one that we may use.
 * Returns the CPU or -errno. */
int measure_pin(int cpu);
int measure_unpin(void);

/* Private memory whose pages are there already, filled with bytes that do not
 * compress away; NULL = no memory. */
void *measure_memory(size_t size);
/* Private memory of a process, bytes. */
uint64_t measure_private(pid_t pid);

/* Reads one byte of each page. */
uint64_t measure_touch(const void *memory, size_t size);

#ifdef __cplusplus
}
#endif
#endif
