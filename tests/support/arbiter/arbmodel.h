/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbmodel.h: the arbiter's caller, who keeps books of its own and believes nothing: from messages,
 * outcomes, replies and the log it knows who waits, who owns which bytes and in which state each
 * context must be, and compares all of it after every message with what the arbiter says.
 *
 * The invariants, after each message:
 *
 * 1. 0 <= used <= capacity (after a pool shrank: nothing new until then); used is the sum of the
 *    live reservations that are not spilled.
 * 2. No context is BLOCKED whose request fits into free + reclaimable, unless the pool is closed
 *    above it.
 * 3. Parked (ALLOC, ALLOC_FREE, BLOCKED, BUFN) is exactly: one reply is withheld.
 * 4. Never are all tasks certainly stalled, a context parked, and no reply on its way.
 * 5. RETRY goes to none but the lowest BLOCKED of the stalled or hopeless; SPLIT to none but the
 *    best BUFN.
 * 6. Every call completes exactly once; nothing is sent to a context that was removed.
 * 7. RETRIES and SPLITS delivered are the sums of those of all tasks.
 * 8. The log, replayed, gives the states.
 */
#ifndef ARBMODEL_H
#define ARBMODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arbiter.h"

#define ARBMODEL_POOLS    4
#define ARBMODEL_TASKS    512
#define ARBMODEL_CONTEXTS 16
#define ARBMODEL_BYTES    512 /* reservations */
#define ARBMODEL_LIST     8   /* tasks of one context, pools of one request */
#define ARBMODEL_PINS     64  /* of one reservation, its owner's not counted */

struct arbmodel_pool {
	uint64_t id, capacity, reserve; /* id 0: none here */
	enum arb_pool_kind kind;
};

struct arbmodel_task {
	uint64_t id; /* never used again, so that its metrics stay apart */
	bool lives, armed;
	int64_t priority;
};

struct arbmodel_bytes {
	uint64_t id, pool, owner, bytes, spilled; /* id 0: none here */
	bool sealed, reclaimable;
	bool spill;      /* of the spill path */
	uint64_t wanted; /* bytes of it that are asked to be spilled and did not come */
	/* The tasks that pin it: its owner, and others in the order in which they began to. Of
	 * these, who not because of a withheld PIN alone. */
	bool owner_pins;
	struct {
		uint64_t task;
		bool stays;
	} pins[ARBMODEL_PINS];
	uint32_t n_pins;
};

struct arbmodel_request {
	enum arb_op op;
	uint64_t first, pools[ARBMODEL_LIST], amounts[ARBMODEL_LIST], deadline_ns;
	uint64_t grows; /* bytes that the reservation has already */
	uint32_t n, flags;
	/* PIN: pins as long as it is withheld, unless it was unpinned meanwhile;
	 * for a task, 0 = the owner */
	bool pins;
	uint64_t pinner;
};

struct arbmodel_context {
	uint64_t id, tasks[ARBMODEL_LIST];
	uint32_t n_tasks; /* 0: not bound */
	enum arb_kind kind;
	enum arb_state state; /* as the log says */
	int64_t priority;
	enum arb_wait wait; /* its mark; 0 = none */
	uint64_t waits_for; /* ARB_WAIT_TASK */
	bool os_blocked, armed;
	/* a reply is withheld; the log says that it is completed, the reply has not come yet */
	bool waits, done;
	bool spill_bracket;
	enum arb_outcome outcome; /* done: with which */
	struct arbmodel_request request;
};

struct arbmodel {
	struct arb *core;
	uint64_t now_ns;
	struct arbmodel_pool pools[ARBMODEL_POOLS];
	struct arbmodel_task tasks[ARBMODEL_TASKS];
	struct arbmodel_context contexts[ARBMODEL_CONTEXTS];
	struct arbmodel_bytes bytes[ARBMODEL_BYTES];
	size_t n_tasks;                   /* ever */
	uint64_t log_number, step_number; /* read so far; before the last message */
	/* delivered, injected ones too; and those that NOMEM was said instead of */
	uint64_t n_retries, n_splits;
	uint64_t n_silent; /* ticks since anything else happened */
	uint64_t n_messages;
	bool down;
	int64_t knobs[ARB_KNOB_OS_PROBE + 1];
	uint64_t n_met[ARB_OP_SHUTDOWN + 1][ARB_INVALID + 1]; /* messages by outcome */
	uint64_t n_done[ARB_INVALID + 1], n_spills, n_early;  /* replies by outcome */
	char wrong[400];                                      /* "" = nothing yet */
};

int arbmodel_init(struct arbmodel *m); /* 0, -ENOMEM */
void arbmodel_deinit(struct arbmodel *m);

/* One message; its time is m->now_ns. false: the arbiter has broken a rule, m->wrong says which. */
bool arbmodel_step(struct arbmodel *m, const struct arb_message *msg, enum arb_outcome *ret);

struct arbmodel_pool *arbmodel_pool(struct arbmodel *m, uint64_t id);
struct arbmodel_task *arbmodel_task(struct arbmodel *m, uint64_t id);
struct arbmodel_context *arbmodel_context(struct arbmodel *m, uint64_t id);
struct arbmodel_bytes *arbmodel_bytes(struct arbmodel *m, uint64_t id);

/* Says what is wrong, the first time. */
void arbmodel_fail(struct arbmodel *m, const char *form, ...) __attribute__((format(printf, 2, 3)));

/* arbpins.c: who pins what. */
/* c's PIN is withheld */
void arbpins_ask(struct arbmodel *m, struct arbmodel_context *c, uint64_t task);
void arbpins_done(struct arbmodel *m, struct arbmodel_context *c, bool ok); /* no more */
void arbpins_pin(struct arbmodel *m, struct arbmodel_bytes *b, uint64_t task);
void arbpins_unpin(struct arbmodel *m, struct arbmodel_bytes *b, uint64_t task);
void arbpins_own(struct arbmodel *m, struct arbmodel_bytes *b, uint64_t task);
void arbpins_end_task(struct arbmodel *m, uint64_t task);
/* Tasks, the owner first if it does; 0 = nobody, who may own it. Returns how many there are. */
uint32_t arbpins_of(const struct arbmodel *m, const struct arbmodel_bytes *b,
		    uint64_t ret[ARBMODEL_PINS + 1]);

/* arbbooks.c: a message that said OK; a request, and that it is granted. */
void arbbooks_apply(struct arbmodel *m, const struct arb_message *msg);
struct arbmodel_request arbbooks_request(struct arbmodel *m, const struct arb_message *msg);
void arbbooks_grant(struct arbmodel *m, const struct arbmodel_context *c,
		    const struct arbmodel_request *r);

/* arbrules.c: who may be told to roll back and to split now, and what must
 * hold between two messages. */
void arbrules_retry(struct arbmodel *m, const struct arbmodel_context *victim);
void arbrules_split(struct arbmodel *m, const struct arbmodel_context *victim);
void arbrules_books(struct arbmodel *m);
void arbrules_waiting(struct arbmodel *m);
void arbrules_counters(struct arbmodel *m);

static inline bool arbmodel_is_parked(enum arb_state s)
{
	return s == ARB_ALLOC || s == ARB_ALLOC_FREE || s == ARB_BLOCKED || s == ARB_BUFN;
}

#endif
