/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preempt.h: where memory is short, processes that run tasks are asked to stop, and made to (policy.h says which). One wave at a time: nobody else is chosen while
 * one of it lives. Off unless the configuration switches it on. Loop's thread only.
 *
 *   notice    TASK_PREEMPT, and an event ("preempt"), say which tasks of which process, and the time that they have. Its actors that may be moved are (actors.h)
 *   SIGTERM   after that time, if memory is still above the kill threshold
 *   SIGKILL   after a time for ending
 *
 * Between gate and kill there is nothing but the notice. Who ends the tasks in time, lives; so does one that the need passed by. Signals go by a descriptor of
 * the process (peerpid.h), to processes of users that the daemon may signal, and only to those that run tasks which all may be preempted, or that said that they
 * are workers and run none.
 */
#ifndef PREEMPT_H
#define PREEMPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "policy.h"

struct host;
struct preempt;

#define PREEMPT_RECENT 32u

enum preempt_step {
	PREEMPT_NOTICED,
	PREEMPT_TERMED,
	PREEMPT_KILLED,
	PREEMPT_GONE,    /* it died */
	PREEMPT_YIELDED, /* it ended its tasks, and lives */
	PREEMPT_SPARED,  /* it did not, and the need passed by */
};

/* What became, or becomes, of one. */
struct preempt_record {
	uint64_t number;  /* from 1 */
	int64_t time_ns;  /* CLOCK_REALTIME of its notice */
	uint64_t mono_ns; /* CLOCK_MONOTONIC of the look that its last step followed */
	pid_t pid;
	uid_t uid;
	unsigned n_tasks;
	enum policylevel level;
	enum policy_why why;
	enum preempt_step step;
	bool notice_only, retry;
	int64_t bytes;     /* that its end was to free */
	int64_t used;      /* of the host, when it was chosen */
	uint64_t delay_ms; /* before its tasks should be tried again */
};

struct preempt_counts {
	uint64_t n_waves, n_notices, n_terms, n_kills, n_gone, n_yielded, n_spared;
	uint64_t n_level[POLICYLEVEL_ALWAYS + 1]; /* notices, by level */
	size_t n_alive;                           /* of this wave */
};

/* *ret NULL: nobody watches the host's memory. 0, -ENOMEM. */
int preempt_new(struct host *h, struct preempt **ret);
/* Victims that live go on. Before admit_free(). Returns NULL. */
struct preempt *preempt_free(struct preempt *p);

void preempt_counts(const struct preempt *p, struct preempt_counts *ret);
/* The last ones, those that are under way included, the newest first. Returns how many. */
size_t preempt_recent(const struct preempt *p, struct preempt_record ret[PREEMPT_RECENT]);
const char *preempt_step_name(enum preempt_step s);

/* What would be done: each candidate in the order in which they would go, wave after wave, until none is left. */
struct preempt_plan {
	pid_t pid;
	uid_t uid;
	unsigned n_tasks;
	size_t n_actors, n_movable; /* of these actors: to another process that has room, at the notice */
	enum policylevel level;
	enum policy_why why;
	bool retry, now; /* now: in the wave that memory as it is calls for */
	int64_t bytes;
};
struct preempt_plans {
	enum policy_kind policy;
	int64_t need; /* bytes that are to be freed now; 0 or less: none */
	size_t n;
	struct preempt_plan *plans; /* to be freed */
	size_t n_never,
		n_foreign; /* processes that are no candidates: a task is NEVER; the daemon may not signal them */
};
/* By the configured policy, or shm where it is off. -ENOMEM. */
int preempt_plan(const struct preempt *p, struct preempt_plans *ret);

#endif
