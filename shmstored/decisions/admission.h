/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admission.h: may one more task begin? By what those that run have reserved, what this one is estimated to use, and the gate. Pure: no
 * clock, no I/O.
 *
 *   toobig    it declared more than there is: it can never run. Not admitted
 *   progress  nothing runs: admitted, whatever it needs
 *   gate      the host's memory is above the gate: gateline.h decides that, no call here does
 *   fits      the reservations and the estimate are within the cap; HISTOGRAM: P(sum of all > cap) <= eps
 *   full      they are not
 *
 * A running task reserves max(estimate, or what it will have at most where that is less; what it has now).
 *
 * HISTOGRAM counts in quanta of a 256th of the cap. The values of each task's kind, rounded up to quanta, are a distribution, of a
 * running task without those that it cannot reach any more; that of the sum is their convolution, with fixed-point numbers of 62 bits, which are the same on every machine.
 */
#ifndef ADMISSION_H
#define ADMISSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profile.h"

/*
 * The distribution of what several tasks will use together, in quanta of a 256th of a cap. Private to the room.
 *
 * A probability is a number of 62 binary places. All products are rounded down, and so is a share once: what is 0.028 exactly is never above
 * the share 0.028. A distribution lacks less than 10^-12 by that.
 */
#define ADMISSIONSUM_QUANTA 256u

struct admissionsum {
	uint64_t quantum, cap; /* cap: whole quanta */
	uint64_t over;         /* P(more than the cap) */
	uint64_t p[ADMISSIONSUM_QUANTA + 1];
};

void admissionsum_init(struct admissionsum *s, uint64_t cap);
/*
 * One more task: each of its n values as likely as the others, but at least `least`, and without those above `most`: where all are above,
 * it is that. n is 1 to 2^32.
 */
void admissionsum_add(struct admissionsum *s, const uint64_t *values, size_t n, uint64_t least, uint64_t most);
/* P(more than the cap) with one more task. */
uint64_t admissionsum_over(const struct admissionsum *s, const uint64_t *values, size_t n);
/* A share in millionths as such a number. */
uint64_t admissionsum_share(uint32_t ppm);

#define ADMISSION_TASKS 65535u /* at once; of more bytes than PROFILE_MOST no task is: the sum is always below 2^64 */

enum admission_reason {
	ADMISSION_PROGRESS,
	ADMISSION_FITS,
	ADMISSION_GATE,
	ADMISSION_FULL,
	ADMISSION_TOOBIG,
};

struct admission_ask {
	uint64_t declared, estimate;
	enum profile_strategy strategy;
	uint32_t eps_ppm;       /* HISTOGRAM */
	const uint64_t *values; /* HISTOGRAM: as profile_values() says; none: it will use its estimate */
	size_t n_values;
};

struct admission_answer {
	bool admit;
	enum admission_reason reason;
	uint64_t reserve;
};

struct admission;

/* NULL: no memory. */
struct admission *admission_new(uint64_t cap);
/* Returns NULL. */
struct admission *admission_free(struct admission *a);
void admission_set_cap(struct admission *a, uint64_t cap);

/* Would it be admitted now? Changes nothing. */
struct admission_answer admission_try(struct admission *a, const struct admission_ask *ask);
/* It begins, admitted or not. Return: 0; -EEXIST; -EAGAIN: ADMISSION_TASKS run; -ENOMEM. */
int admission_start(struct admission *a, uint64_t task, const struct admission_ask *ask);
/*
 * The bytes that the task has now, and the most it will have: the lesser of profile_remaining(), where
 * profile_has_phases(), and profile_at_most(); UINT64_MAX: that is not known. Return: 0; -ENOENT.
 */
int admission_note(struct admission *a, uint64_t task, uint64_t now, uint64_t remaining);
/* Return: 0; -ENOENT. */
int admission_end(struct admission *a, uint64_t task);

uint64_t admission_reserved(const struct admission *a);
uint64_t admission_used(const struct admission *a); /* what they have now */
const char *admission_reason_name(enum admission_reason r);

/*
 * Which strategy estimates follow where nobody has pinned one: it begins with the peak, becomes bolder as long as much of what
 * is reserved is not used, and is careful again with kinds of tasks that had to be preempted.
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
/* One more was admitted. true: from now on it is the next strategy: peak, p95, histogram, average. */
bool adaptation_admitted(struct adaptation *a);

#endif
