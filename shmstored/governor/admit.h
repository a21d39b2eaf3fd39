/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admit.h: the gate as a service. Tasks that clients want to begin go through, wait (gate.h),
 * or are refused. An admitted task counts, by what is expected of it, until it is done or its
 * connection ends. There is an admit only if the host's memory is watched (pressure.h). Loop's
 * thread only.
 */
#ifndef ADMIT_H
#define ADMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "admittask.h"
#include "loop.h"
#include "pressure.h"

struct conn;
struct host;

struct admit {
	struct host *host;
	struct admit_tasks tasks;
	struct pressure_watch watch;
	struct loop_op timer; /* the next deadline */
	uint64_t n_full, n_shut, n_big;
};

#define ADMIT_TASKS_MAX 1024u /* that wait or run, of one connection */

struct admit_answer {
	enum gateline_outcome outcome;
	enum gateline_reason reason;
	uint64_t task, reserve, waited_ms; /* task: 0 where it is not in */
};

/* ret NULL: the host's memory is not watched. 0, -ENOMEM. */
int admit_new(struct host *h, struct admit **ret);
/* To be called after the connections were dropped, before pressure_free(). Returns NULL. */
struct admit *admit_free(struct admit *a);

/*
 * 0: *ret is the answer; 1: the task waits, and is answered later; -EMFILE: too many tasks of this
 * connection, or of all; -EPERM: parent is another user's; -ENOMEM.
 */
int admit_ask(struct admit *a, struct conn *c, const struct admit_want *w,
	      struct admit_answer *ret);
/*
 * Counts a running task that an earlier daemon let in. Its present use is unknown, so all that is
 * expected of it may still come. 0: it counts, or did already; -EINVAL: no earlier daemon gave that
 * number; -EEXIST: another connection has it; -EPERM, -EMFILE, -ENOMEM as above.
 */
int admit_runs(struct admit *a, struct conn *c, uint64_t task, const struct admit_want *w);
/* Sends the answer. CONN_OK, CONN_E_SLOW. */
int admit_send(struct conn *c, uint64_t serial, const struct admit_answer *answer);
/* 0; -ENOENT: there is no such task; -EPERM: it is another connection's. */
int admit_done(struct admit *a, struct conn *c, uint64_t task);
/*
 * Withdraws the waiting request with this serial; it gets no answer. False: no such request waits.
 */
bool admit_cancel(struct admit *a, struct conn *c, uint64_t serial);
/* Sends all answers that are known now; to be called after admit_done() and admit_cancel(). */
void admit_settle(struct admit *a);

/* Figures for reports. */
struct admit_books {
	struct gateline_books line;
	uint64_t oldest_ms;             /* the longest wait */
	uint64_t cap, reserved, used;   /* bytes: of all that run; cap: what may be reserved now */
	uint64_t n_full, n_shut, n_big; /* of those refused or timed out: why */
};
void admit_books(const struct admit *a, struct admit_books *ret);

#endif
