/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gateline.h: who waits at the gate, and who goes through. Pure: messages and times in, answers out.
 *
 * A task that wants to begin is let in, refused, or waits with or without a deadline. Who waits is served level by level, those that may
 * least be preempted first, and in the order of arrival within a level: a level's head that does not fit keeps all back, so that a large one is not passed
 * for ever. Within an interval of the gate no more go through than its quota, and no more bytes than lie below its threshold. Who ends within the
 * interval in which it went through leaves its place to another: what it may have taken is given back.
 *
 * Progress: where nothing runs the head is let in, however closed the gate, as nothing could ever open it otherwise. Only what
 * declares that it needs more than there is is told so instead.
 *
 * A restore that a running task waits for does not stand in line: it would wait for what waits for it. It goes through at once, up to a reserve.
 */
#ifndef GATELINE_H
#define GATELINE_H

#include <stddef.h>

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
	int64_t restoring; /* bytes under the reserve */
};

/* cap: of all that may run; reserve: bytes of restores that go past the gate. NULL: no memory. */
struct gateline *gateline_new(int64_t cap, int64_t reserve);
struct gateline *gateline_free(struct gateline *a);

void gateline_set_cap(struct gateline *a, int64_t cap);
/* fits says whether one that may go through by quota has room, instead of what lies below the gate's threshold. It calls nothing here. */
void gateline_fits_by(struct gateline *a, bool (*fits)(const struct gateline_request *r, void *arg), void *arg);
/* The gate has seen a sample: a new interval begins, with a new quota. Before the first one it is closed. */
void gateline_interval(struct gateline *a, const struct gate *g);
/* Nobody else goes through within this interval, however little it needs, unless nothing runs. */
bool gateline_is_shut(const struct gateline *a);
/* -EINVAL: level, or a negative size; -EEXIST: the id waits or runs already; -ENOMEM. Then nothing is changed. */
int gateline_ask(struct gateline *a, const struct gateline_request *r, int64_t now_ms, enum gateline_outcome *ret);
/* One that runs already is counted, whatever the gate says: it takes nothing of the interval. -EINVAL, -EEXIST, -ENOMEM as above. */
int gateline_runs(struct gateline *a, const struct gateline_request *r);
/* Answers one that waited. Call it until it is false, after each of the other calls and when gateline_deadline() has come. */
bool gateline_next(struct gateline *a, int64_t now_ms, struct gateline_answer *ret);
/* The next deadline of somebody who waits; INT64_MAX: none. */
int64_t gateline_deadline(const struct gateline *a);
/* What was let in has ended, or who waits asks no more; unanswered. -ENOENT: neither runs nor waits. */
int gateline_end(struct gateline *a, uint64_t id);

/* May so many bytes be restored at once? They count until restored. What is larger than the reserve goes alone. */
bool gateline_restore(struct gateline *a, int64_t bytes);
void gateline_restored(struct gateline *a, int64_t bytes);

void gateline_books(const struct gateline *a, struct gateline_books *ret);
int64_t gateline_oldest_ms(const struct gateline *a,
			   int64_t now_ms); /* how long the longest wait is; 0: nobody waits */

#endif
