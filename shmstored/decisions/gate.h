/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate.h: decides whether more work may begin on a host, and how much. A burst closes the gate at
 * once; a single quiet look does not open it again.
 *
 *   open -> closed   u >= high, where u is the larger of the last sample and of the window's
 *                    95th percentile
 *   closed -> open   u <= low in `hold` samples that follow each other
 *
 * After opening, ramp0 tasks may begin within an interval, and in each further one twice as many,
 * up to rampmax. Between low and high nothing changes. A sample that is unknown changes nothing,
 * but interrupts a row of low samples. Pure, no allocation. The caller sees to it that samples come
 * at equal intervals.
 */
#ifndef GATE_H
#define GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "amount.h"
#include "deadlines.h"
#include "profile.h"

/*
 * Computes thresholds from how fast memory can fill. Between two looks a host may gain
 * rate * interval bytes unseen; delta is their share of its memory. Killing begins one delta below
 * the top, and admission ends one delta below that: one for what was not seen, one for the time
 * that the reaction takes.
 */
#define DELTARULE_KILL_PPM 950000 /* never higher than this */
#define DELTARULE_GATE_PPM 50000  /* below the kill threshold, at least */
#define DELTARULE_MOST_PPM 250000 /* a larger delta leaves no room to work in */

struct deltarule {
	int64_t delta_ppm, gate_ppm, kill_ppm;
	int64_t max_interval_ms; /* that keeps delta within DELTARULE_MOST_PPM; INT64_MAX: any */
};

/*
 * total: the host's bytes. rate: the most bytes a second that are touched for the first time.
 * interval_ms: between two looks. Return: 0; -EINVAL: total or interval_ms is not positive, or rate
 * is negative; -ERANGE: delta is too large, and only max_interval_ms is set.
 */
int deltarule_compute(int64_t total, int64_t rate, int64_t interval_ms, struct deltarule *ret);

#define GATE_WINDOW_MAX 256u

struct gate_config {
	int64_t high, low;       /* bytes, 0 <= low < high */
	uint32_t window, hold;   /* samples: 1 to GATE_WINDOW_MAX; at least 1 */
	uint64_t ramp0, rampmax; /* 1 <= ramp0 <= rampmax */
};

struct gate {
	struct gate_config config;
	bool closed;
	/* a ring: the last n_samples, next is the oldest of a full one */
	int64_t samples[GATE_WINDOW_MAX];
	uint32_t n_samples, next;
	int64_t u;      /* of the last sample that was known */
	uint32_t n_low; /* while closed: samples at or below low, one after the other */
	uint64_t ramp;  /* while open */
	uint64_t n_flips, n_unknown;
};

/*
 * Gives a gate its thresholds, or other ones; it keeps its samples. A gate of zeros becomes an open
 * one, with the full ramp. -EINVAL: the configuration is out of bounds.
 */
int gate_set(struct gate *g, const struct gate_config *config);
void gate_sample(struct gate *g, struct amount used);
/*
 * How many tasks may begin within this interval. estimate: bytes that each may take; if that is
 * known and not 0, the quota is at most as many as fit below high.
 */
uint64_t gate_quota(const struct gate *g, struct amount estimate);

/*
 * Sums of what running tasks have reserved together, and whether one more fits beside them. A task
 * is the caller's structure.
 *
 * A running task reserves max(estimate, or what it will have at most where that is less; what it
 * has now). One more fits if the reservations and its estimate are within the cap; by HISTOGRAM,
 * if P(sum of all > cap) <= eps.
 *
 * HISTOGRAM counts in quanta of a 256th of the cap. The values of each task's kind, rounded
 * up to quanta, are a distribution, of a running task without those that it cannot reach
 * any more; that of the sum is their convolution, with fixed-point numbers of 62 bits,
 * which are the same on every machine.
 */
/*
 * The distribution of what several tasks will use together, in quanta of a 256th
 * of a cap. Private to the room.
 *
 * A probability is a number of 62 binary places. All products are rounded down, and so is
 * a share once: what is 0.028 exactly is never above the share 0.028. A distribution
 * lacks less than 10^-12 by that.
 */
#define ADMISSIONSUM_QUANTA 256u

struct admissionsum {
	uint64_t quantum, cap; /* cap: whole quanta */
	uint64_t over;         /* P(more than the cap) */
	uint64_t p[ADMISSIONSUM_QUANTA + 1];
};

void admissionsum_init(struct admissionsum *s, uint64_t cap);
/*
 * One more task: each of its n values as likely as the others, but at least `least`, and without
 * those above `most`: where all are above, it is that. n is 1 to 2^32.
 */
void admissionsum_add(struct admissionsum *s, const uint64_t *values, size_t n, uint64_t least,
		      uint64_t most);
/* P(more than the cap) with one more task. */
uint64_t admissionsum_over(const struct admissionsum *s, const uint64_t *values, size_t n);
/* A share in millionths as such a number. */
uint64_t admissionsum_share(uint32_t ppm);

/* at once; of more bytes than PROFILE_MOST no task is: the sum is always below 2^64 */
#define ADMISSION_TASKS 65535u

struct admission_task {
	/* Set by the caller, and unchanged while it runs: */
	uint64_t estimate; /* at most PROFILE_MOST */
	enum profile_strategy strategy;
	uint32_t eps_ppm; /* HISTOGRAM */
	/* HISTOGRAM: as profile_values() says; none: it will use its estimate */
	const uint64_t *values;
	size_t n_values;
	/* Set here: */
	uint64_t now, reserve;
	uint64_t most; /* of its values, larger ones are out of the question */
	struct admission_task *prev, *next;
};

struct admission {
	uint64_t cap, reserved;
	uint64_t used; /* by running tasks now */
	struct admission_task *tasks;
	bool stale; /* sum is not that of the tasks */
	struct admissionsum sum;
};

void admission_init(struct admission *a, uint64_t cap);
void admission_set_cap(struct admission *a, uint64_t cap);
/* Would it fit now? Nothing changes. */
bool admission_fits(struct admission *a, const struct admission_task *t);
/* It begins, whether it fits or not. */
void admission_start(struct admission *a, struct admission_task *t);
/*
 * The bytes that a running task has now, and the most it will have: profile_bound().
 */
void admission_note(struct admission *a, struct admission_task *t, uint64_t now,
		    uint64_t remaining);
void admission_end(struct admission *a, struct admission_task *t);

/*
 * The strategy that estimates follow where nobody has pinned one: it begins with the peak, becomes
 * bolder as long as much of what is reserved is not used, and is careful again with kinds of
 * tasks that had to be preempted.
 */
#define ADAPTATION_WINDOW 64u /* admissions */
#define ADAPTATION_USED   60u /* percent: less than this of what is reserved is used: a step down */

struct adaptation {
	enum profile_strategy now;
	bool looked, busy; /* in this window: there was a sample; one at which enough was used */
	uint32_t n_admitted;
};

/* A sample of all running tasks together. Nothing reserved: it says nothing. */
void adaptation_note(struct adaptation *a, uint64_t used, uint64_t reserved);
/* One more was admitted. true: from now on it is the next strategy: peak, p95, histogram,
 * average. */
bool adaptation_admitted(struct adaptation *a);

/*
 * The line at the gate: the tasks that wait, and those that go through. A task is the caller's
 * structure.
 *
 * A task that wants to begin is let in, refused, or waits with or without a deadline. Waiting tasks
 * are served level by level, those that may least be preempted first, and within a level in the
 * order of their arrival. If the first task of a level does not fit, it keeps back all others, so
 * that a large task is not passed for ever. Within an interval of the gate no more tasks go through
 * than its quota, and only those that fit beside what running tasks reserve. A task
 * that ends within the interval in which it went through leaves its place to another.
 *
 * Progress: if nothing runs, the first task is let in, even if the gate is closed, because nothing
 * else could ever open it. Only a task that declares more than there is, is refused instead.
 */

#define GATELINE_LEVELS 5u

enum gateline_form {
	GATELINE_TRY,
	GATELINE_UNTIL,
	GATELINE_WAIT
};

enum gateline_outcome {
	GATELINE_WAITS, /* answered later by gateline_next() */
	GATELINE_IN,
	GATELINE_PROGRESS, /* in, because nothing runs */
	GATELINE_REFUSED,  /* a try that would have to wait */
	GATELINE_TIMED_OUT,
	GATELINE_TOO_BIG /* it declares more than there is */
};

enum gateline_reason {
	GATELINE_NOTHING_RUNS,
	GATELINE_FITS,
	GATELINE_SHUT,
	GATELINE_FULL,
	GATELINE_MORE_THAN_ALL
};

struct gateline_task {
	/* Set by the caller, and unchanged while the task waits or runs: */
	unsigned level; /* 0 to GATELINE_LEVELS - 1 */
	enum gateline_form form;
	uint64_t deadline_ms; /* of UNTIL */
	uint64_t declared;    /* the least that it says it needs */
	struct admission_task share;
	/* Set here: */
	bool waits, runs;
	uint64_t since_ms;                 /* it waits since then */
	uint64_t interval;                 /* in which it went through, and */
	bool counts;                       /*   took one of its quota */
	struct gateline_task *prev, *next; /* of its level's line */
	struct deadline due;
};

struct gateline_books {
	uint64_t n_running, n_waiting, n_admitted, n_progress, n_refused, n_timed_out;
};

struct gateline {
	uint64_t cap;          /* bytes of all that may run: a task that declares more is too big */
	struct admission sums; /* of those that run; their cap is set by admission_set_cap() */
	struct gateline_task *lines[GATELINE_LEVELS];
	struct deadline *due;
	bool open;
	uint64_t interval, quota; /* quota: what is left of this interval's */
	struct gateline_books books;
};

/* Nothing is too big, and nothing fits: the caller sets both caps. */
void gateline_init(struct gateline *a);
/*
 * The gate has a new sample: a new interval begins, with a new quota. Before the first one the gate
 * is closed.
 */
void gateline_interval(struct gateline *a, const struct gate *g);
/*
 * Does nothing more go through within this interval, however little it needs, unless nothing runs?
 */
bool gateline_is_shut(const struct gateline *a);
enum gateline_outcome gateline_ask(struct gateline *a, struct gateline_task *t, uint64_t now_ms);
/* Counts a task that runs already, whatever the gate says. It takes nothing of the interval. */
void gateline_runs(struct gateline *a, struct gateline_task *t);
/*
 * Returns a task that waited, and its answer; NULL: there is none. Call it until then, after each
 * of the other calls, and when gateline_deadline() has come.
 */
struct gateline_task *gateline_next(struct gateline *a, uint64_t now_ms,
				    enum gateline_outcome *ret);
/* The next deadline of a waiting task; UINT64_MAX: there is none. */
uint64_t gateline_deadline(const struct gateline *a);
/* The task has ended, or is withdrawn and gets no answer. A task that neither runs
 * nor waits may be given, too. */
void gateline_end(struct gateline *a, struct gateline_task *t);
/* Why a task has this outcome now. */
enum gateline_reason gateline_reason(const struct gateline *a, enum gateline_outcome outcome);
const char *gateline_reason_name(enum gateline_reason r);
uint64_t gateline_oldest_ms(const struct gateline *a,
			    uint64_t now_ms); /* how long the longest wait is; 0: nobody waits */

#endif
