/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admission.h: what running tasks have reserved together, and whether one more fits beside them.
 * Pure: no clock, no I/O, and a task is the caller's structure.
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
#ifndef ADMISSION_H
#define ADMISSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profile.h"

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
 * The bytes that a running task has now, and the most it will have: the lesser of
 * profile_remaining(), where profile_has_phases(), and profile_at_most();
 * UINT64_MAX: that is not known.
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

/* It begins with the peak. */
void adaptation_init(struct adaptation *a);
/* A sample of all running tasks together. Nothing reserved: it says nothing. */
void adaptation_note(struct adaptation *a, uint64_t used, uint64_t reserved);
/* One more was admitted. true: from now on it is the next strategy: peak, p95, histogram,
 * average. */
bool adaptation_admitted(struct adaptation *a);

#endif
