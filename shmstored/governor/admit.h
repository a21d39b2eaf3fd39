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

#include "gate.h"
#include "hash.h"
#include "loop.h"
#include "policy.h"
#include "pressure.h"

/*
 * The private memory of a process and its descendants, as far as it exceeds what the process had
 * when the first of its running tasks began, is its tasks': in the order in which they began each
 * has as much as is expected of it, and the last one the rest. So it is known how much several
 * tasks of one process will still take together, whichever of them has what. When a task ends, what
 * exceeds the expectations of the tasks that still run counts as the process's own.
 */

/* A client's wish to begin a task. */
struct admit_want {
	uint64_t serial; /* of the request: an answer that is withheld has it */
	uint32_t uid;
	enum policylevel level;
	bool retriable;
	bool told, worker; /* as WIRE_TASK_TOLD, _WORKER */
	enum gateline_form form;
	uint64_t timeout_ms; /* GATELINE_UNTIL */
	uint64_t declared;
	uint64_t parent;
	const struct profile_name *name; /* NULL: none */
};

struct admit_task {
	UT_hash_handle hh; /* by id */
	uint64_t id;       /* of the host, never 0, never another's */
	struct client *client;
	struct admit_task *prev, *next; /* of client */
	struct pressproc *proc;         /* NULL: it waits, or its process is not seen */
	struct admit_task *proc_prev, *proc_next;
	struct gateline_task gate;
	uint64_t serial; /* while it waits: of its request */
	uint32_t uid;
	enum policylevel level; /* as it was said: NEVER to AUTO */
	bool retriable;
	uint64_t parent, n_children; /* n_children: that run now */
	bool counted;                /* among its parent's */
	uint64_t since_ns;           /* it waits, or runs, since then: loop_clock() */
	struct profile_name name;    /* lang NULL: none was said */
	uint64_t most;               /* that it has had of its process's */
	bool alone; /* it always was the only one of its process: most is its own */
	char *names;
	uint64_t values[];
};

struct admit {
	struct host *host;
	struct admit_task *tasks;
	struct gateline line;
	struct pressprocs *procs;
	/* last_id: given by this daemon; up to first_id: by earlier ones */
	uint64_t first_id, last_id;
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

struct admit_task *admit_find(const struct admit *a, uint64_t id);
/* The level as it is now: NEVER to ALWAYS. */
enum policylevel admit_level(const struct admit_task *k);

/* Figures for reports. */
struct admit_books {
	struct gateline_books line;
	uint64_t oldest_ms;             /* the longest wait */
	uint64_t cap, reserved, used;   /* bytes: of all that run; cap: what may be reserved now */
	uint64_t n_full, n_shut, n_big; /* of those refused or timed out: why */
};
void admit_books(const struct admit *a, struct admit_books *ret);

#endif
