/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vclock.h: virtual time. Runners are written straight on, as threads are, but one at a time runs,
 * and time passes only where all of them wait for it: a run of minutes takes as long as its
 * decisions, and takes the same ones each time.
 */
#ifndef SIM_VCLOCK_H
#define SIM_VCLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vclock;
struct vrunner;

/* NULL = no memory. free: runners that have not ended are dropped where they stand. */
struct vclock *vclock_new(void);
struct vclock *vclock_free(struct vclock *c);
uint64_t vclock_now(const struct vclock *c); /* ns */

/* Calls fn(arg) at that time (the past: now), in the order of time, then of
 * asking. Exits where memory ends. */
void vclock_at(struct vclock *c, uint64_t time_ns, void (*fn)(void *arg), void *arg);

/* A runner: begins now, runs until fn returns. */
struct vrunner *vclock_start(struct vclock *c, void (*fn)(void *arg), void *arg);
/* Within a runner: ns later; or when somebody wakes it. */
void vclock_sleep(struct vclock *c, uint64_t ns);
void vclock_park(struct vclock *c);
/* Lets a parked runner go on, now, after what was asked for earlier. Once per park. */
void vclock_wake(struct vclock *c, struct vrunner *r);

enum vclock_end {
	VCLOCK_DONE,  /* all runners have ended */
	VCLOCK_LATE,  /* the time or the number of events is up: some have not */
	VCLOCK_STUCK, /* nothing will happen any more, and some have not ended */
};
/* Runs until all runners have ended; not beyond limit_ns, and not more than n_max events. Events
 * that are still to come are kept. */
enum vclock_end vclock_run(struct vclock *c, uint64_t limit_ns, uint64_t n_max);
/* After that: until nothing is to come any more, time passing as it must. */
void vclock_drain(struct vclock *c);

#endif
