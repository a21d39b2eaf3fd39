/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy.h: whom to preempt when memory is short. Pure: workers in, victims out,
 * in the order in which they go.
 *
 *   lifo    who can be tried again first; then who began last. One.
 *   fifo    the same, but who began first.
 *   group   an idle worker that holds much; else of those that one task started, the largest such
 *           group's latest. One. All that cannot be tried again are a group of their own, the last.
 *   time    idle workers, the largest first; then as lifo; as many as bring what is needed.
 *   shm     as time, but a task's level decides first, and NEVER is never taken. Between gate and
 *           kill only idle workers and level ALWAYS.
 *
 * The first four are the policies of Ray, so that both can be compared on the same input;
 * shm is ours and the default.
 *
 * One wave at a time: while a victim lives its memory is not free yet, and choosing again would
 * take more than is needed. Of what is unknown nothing is expected: a worker whose memory could not
 * be read may be a victim, and counts 0.
 */
#ifndef POLICY_H
#define POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "amount.h"

/* How willing a task is to be preempted, as people write it, and whose word counts. */
enum policylevel {
	POLICYLEVEL_NEVER,
	POLICYLEVEL_LOW,
	POLICYLEVEL_MED,
	POLICYLEVEL_HIGH,
	POLICYLEVEL_ALWAYS,
	POLICYLEVEL_AUTO,  /* by what the task is: HIGH where nothing is lost for good */
	POLICYLEVEL_UNSAID /* nobody said anything */
};

/* A task's properties that decide its level. Methods of an actor have their actor's. */
struct policylevel_wish {
	enum policylevel class, instance; /* UNSAID, AUTO, or a level */
	bool automatic;                   /* where neither says anything: as if AUTO was said */
	bool retriable;
	uint64_t n_children; /* tasks that it started, and that would be lost with it */
};

const char *policylevel_name(enum policylevel level);
/* NEVER to ALWAYS. The instance's word counts before its class's. */
enum policylevel policylevel_resolve(const struct policylevel_wish *w);

enum policy_kind {
	POLICY_LIFO,
	POLICY_FIFO,
	POLICY_GROUP,
	POLICY_TIME,
	POLICY_SHM
};

/* an idle worker that ran nothing so far may keep so much */
#define POLICY_IDLE_BYTES (INT64_C(1) << 30)

struct policy {
	enum policy_kind kind;
	struct amount kill,
		/* thresholds; gate unknown: there is none. time and shm choose
		 * nobody where kill is unknown */
		gate;
	int64_t buffer; /* bytes below kill that are freed, too */
	int64_t idle;   /* bytes, see POLICY_IDLE_BYTES; group: of every idle worker */
};

enum policy_work {
	POLICY_TASK,       /* retries: as many as are left, <0 without end */
	POLICY_ACTOR,      /* its creation; retries: restarts */
	POLICY_ACTOR_TASK, /* a call of a method: never tried again */
	POLICY_IDLE,       /* it ran something before */
	POLICY_COLD,       /* idle, and never used */
	POLICY_IO          /* spills and restores: never a victim */
};

enum policy_life {
	POLICY_ALIVE,
	POLICY_TAKEN,
	POLICY_DEAD
};

struct policy_worker {
	uint64_t id, owner; /* owner: who started its task */
	int64_t start;      /* of what it runs: larger is later */
	int64_t retries;
	struct amount private, sole; /* sole: of the store, what nobody else refers to */
	enum policy_work work;
	enum policylevel level; /* resolved: NEVER to ALWAYS */
	enum policy_life life;
};

enum policy_why {
	POLICY_WHY_IDLE,
	POLICY_WHY_ALWAYS,
	POLICY_WHY_LEVEL,
	POLICY_WHY_RETRIABLE,
	POLICY_WHY_LAST
};

struct policy_victim {
	struct policy_worker *worker;
	int64_t bytes; /* that its end frees */
	bool retry;    /* what its task's owner is told */
	enum policy_why why;
};

/*
 * Chooses the next wave, and marks its workers as TAKEN. used: of the host, as the thresholds are;
 * unknown: time and shm choose nobody. ret has room for n. Return: how many were chosen; 0 also
 * while one that was TAKEN is not DEAD.
 */
size_t policy_select(const struct policy *p, struct amount used, struct policy_worker *workers,
		     size_t n, struct policy_victim *ret);
/* Bytes that time or shm must free now; <= 0: none. */
int64_t policy_need(const struct policy *p, struct amount used);

bool policy_is_retriable(const struct policy_worker *w);
const char *policy_name(enum policy_kind kind);
/* Why it was chosen, for people. */
const char *policy_why(enum policy_why why);

#endif
