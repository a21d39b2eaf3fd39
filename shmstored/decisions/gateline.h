/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gateline.h: which tasks wait at the gate, and which go through. Pure: messages and times in,
 * answers out.
 *
 * A task that wants to begin is let in, refused, or waits with or without a deadline. Waiting tasks
 * are served level by level, those that may least be preempted first, and within a level in the
 * order of their arrival. If the first task of a level does not fit, it keeps back all others, so
 * that a large task is not passed for ever. Within an interval of the gate no more tasks go through
 * than its quota, and no more bytes than lie below its threshold. A task that ends within the
 * interval in which it went through leaves its place to another: what it may have taken is given
 * back.
 *
 * Progress: if nothing runs, the first task is let in, even if the gate is closed, because nothing
 * else could ever open it. Only a task that declares more than there is, is refused instead.
 */
#ifndef GATELINE_H
#define GATELINE_H

#include "gate.h"

#define GATELINE_LEVELS 5u

struct gateline;

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

struct gateline_request {
	uint64_t id;    /* the caller's; not one that waits or runs */
	unsigned level; /* 0 to GATELINE_LEVELS - 1 */
	enum gateline_form form;
	int64_t deadline_ms;    /* of UNTIL */
	int64_t declared;       /* the least that it says it needs */
	struct amount estimate; /* what it will take, probably */
};

struct gateline_answer {
	uint64_t id;
	enum gateline_outcome outcome;
	int64_t waited_ms;
};

struct gateline_books {
	uint64_t n_running, n_waiting, n_admitted, n_progress, n_refused, n_timed_out;
};

/* cap: bytes of all that may run. NULL: out of memory. */
struct gateline *gateline_new(int64_t cap);
struct gateline *gateline_free(struct gateline *a);

void gateline_set_cap(struct gateline *a, int64_t cap);
/*
 * Replaces the rule "below the gate's threshold": fits says whether a task that may go through by
 * quota has room. It must not call the gateline.
 */
void gateline_fits_by(struct gateline *a, bool (*fits)(const struct gateline_request *r, void *arg), void *arg);
/*
 * The gate has a new sample: a new interval begins, with a new quota. Before the first one the gate
 * is closed.
 */
void gateline_interval(struct gateline *a, const struct gate *g);
/*
 * Does nothing more go through within this interval, however little it needs, unless nothing runs?
 */
bool gateline_is_shut(const struct gateline *a);
/*
 * -EINVAL: level, or a negative size; -EEXIST: the id waits or runs already; -ENOMEM. Then nothing
 * has changed.
 */
int gateline_ask(struct gateline *a, const struct gateline_request *r, int64_t now_ms, enum gateline_outcome *ret);
/*
 * Counts a task that runs already, whatever the gate says. It takes nothing of the interval.
 * -EINVAL, -EEXIST, -ENOMEM as above.
 */
int gateline_runs(struct gateline *a, const struct gateline_request *r);
/*
 * Returns the answer of a task that waited. Call it until it is false, after each of the other
 * calls, and when gateline_deadline() has come.
 */
bool gateline_next(struct gateline *a, int64_t now_ms, struct gateline_answer *ret);
/* The next deadline of a waiting task; INT64_MAX: there is none. */
int64_t gateline_deadline(const struct gateline *a);
/*
 * A task that was let in has ended, or a waiting one is withdrawn, and gets no answer. -ENOENT: it
 * neither runs nor waits.
 */
int gateline_end(struct gateline *a, uint64_t id);

void gateline_books(const struct gateline *a, struct gateline_books *ret);
int64_t gateline_oldest_ms(const struct gateline *a,
			   int64_t now_ms); /* how long the longest wait is; 0: nobody waits */

#endif
