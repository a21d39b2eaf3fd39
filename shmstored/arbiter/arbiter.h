/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbiter.h: who gets memory, who waits, who rolls back, who splits. The pure core: state, message
 * and time in, state and replies out.
 *
 * No locks, no clock, no I/O, one thread at a time. Blocking is a reply that is not sent
 * yet (ARB_PENDING). Bytes are booked to their owner, and a grant and its wake-up are one
 * thing: a context that is woken has its bytes. Work per message grows with what changes,
 * not with what exists. Memory is taken when pools, tasks, contexts and reservations are
 * made, never to make a decision.
 *
 *   pool         bytes that can be reserved: a partition's, or a client's own
 *   task         starts, holds bytes, ends; carries the priority
 *   context      what can wait: a thread, or a key that runs. Dedicated to one task, or a
 *                helper or service of several
 *   reservation  bytes of a pool; owned by a task. Sealed and unpinned it is reclaimable: it may be
 *                spilled when others want its room
 *
 * States of a context (docs/arbiter.md draws them; the numbers are in the log):
 *
 *   UNKNOWN      not bound: reserves pass straight through, or fail with ARB_NOMEM; never parked
 *   RUNNING      nothing pending
 *   ALLOC        parked: waits for spills that were started for it
 *   ALLOC_FREE   the same, and somebody freed in that pool meanwhile
 *   BLOCKED      parked: does not fit now
 *   BUFN_WAIT    was told RETRY, is rolling back
 *   BUFN         parked: rolled back, waits until its whole attempt fits
 *   BUFN_THROW, SPLIT_THROW, REMOVE_THROW exist within one step; the log shows them
 */
#ifndef ARBITER_H
#define ARBITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arb;

/*
 * A client of the caller's, and its objects: those that messages with its group made, until they
 * end. All zero at first. Ids are unique whoever has them.
 */
enum arb_sort {
	ARB_TASKS,
	ARB_CONTEXTS,
	ARB_HOLDS, /* reservations, also those that are asked for */
	ARB_POOLS,
	ARB_SORTS
};

struct arb_item {
	uint64_t id;
	struct arb_group *group; /* NULL: nobody's */
	struct arb_item *prev, *next;
};

/* A reservation as its client sees it. The core only lets it go: from group's list, too. */
struct arb_hold {
	struct arb_item item;
	bool unpinned; /* its owner says that it may go */
	bool offered;  /* and so does the core know */
	bool wanted;   /* wanted_bytes of it are to be spilled; in group->wanted */
	uint64_t wanted_bytes;
	struct arb_hold *wanted_prev, *wanted_next;
};

struct arb_group {
	struct arb_item *items[ARB_SORTS]; /* lists, the oldest first */
	uint32_t n[ARB_SORTS];
	uint64_t bytes[2]; /* of its reservations in a partition's pool; [1]: of sealed ones */
	struct arb_hold *wanted;
	/* NULL, or the next one, once it has gone */
	struct arb_hold *called, *cursor;
};

/* With a call that may be withheld: comes back with its reply. */
struct arb_tag {
	uint64_t serial;
	uint32_t reservation;
	bool quiet;
};

#define ARB_NAME_MAX 127u /* bytes of a pool's or task's name */
#define ARB_LIST_MAX 64u  /* tasks of a helper or service; pools of one RESERVE */

enum arb_state {
	ARB_UNKNOWN = -1,
#define STATE(NAME) ARB_##NAME,
#include "arbiter.def"
};
const char *arb_state_name(enum arb_state s); /* "BLOCKED" */

enum arb_outcome {
#define OUTCOME(NAME) ARB_##NAME,
#include "arbiter.def"
};
const char *arb_outcome_name(enum arb_outcome o); /* "RETRY" */

enum arb_kind {
	ARB_DEDICATED = 1,
	ARB_HELPER,
	ARB_SERVICE
};
enum arb_pool_kind {
	ARB_PARTITION = 1,
	ARB_PRIVATE
};
enum arb_wait {
	ARB_WAIT_POOL = 1,
	ARB_WAIT_TASK,
	ARB_WAIT_EXTERNAL
};
enum arb_inject {
	ARB_INJECT_RETRY = 1,
	ARB_INJECT_SPLIT,
	ARB_INJECT_ERROR,
	ARB_INJECT_TOOBIG,
	ARB_INJECT_TIMEDOUT
};

enum arb_knob {
	ARB_KNOB_NONE,
#define KNOB(NAME, name, value, least, most) ARB_KNOB_##NAME,
#include "arbiter.def"
};
const char *arb_knob_name(enum arb_knob k); /* "max_bypass" */

/* arrival: earlier is higher, below every explicit one of 0 and more */
#define ARB_PRIORITY_DEFAULT INT64_MIN

/* RESERVE: OK or AGAIN; legal in every state, changes none of its own; AGAIN triggers nothing */
#define ARB_NONBLOCK (1u << 0)
/* RESERVE: of the spill path: never waits, may use the pool's spill reserve, booked to "spill" */
#define ARB_SPILL    (1u << 1)
/* TASK_END: its reservations that are not sealed go with it; a dead client's: all that it owns */
#define ARB_RELEASE  (1u << 2)
/* TASK_END with ARB_RELEASE: the sealed ones too. UNBIND: from all tasks */
#define ARB_ALL      (1u << 3)
#define ARB_RESET    (1u << 4) /* arb_stats(): begin to count anew */
/* RESERVE, RESIZE without a context: this is how it is, booked at once, past the capacity
 * too. For what the kernel says */
#define ARB_FORCE    (1u << 5)

/*
 * Messages. Ids are the caller's, not 0, unique among the living of their sort. Fields that a
 * message does not name must be 0.
 *
 *   POOL_CREATE   pool, kind (arb_pool_kind), bytes = capacity, extra = spill
 *                 reserve, name. INVALID: exists
 *   POOL_RESIZE   pool, bytes = capacity now. Bookings stay; new ones wait until all fit again.
 *                 Waiting requests that are now larger than the pool: TOOBIG
 *   POOL_REMOVE   pool; INVALID while anything is booked in it or waits for it
 *   KNOB          kind, value
 *   TASK_BEGIN    task, value = priority or ARB_PRIORITY_DEFAULT, name; a task also begins when it
 *                 is first named by a BIND other = task whose priority it inherits (0 = none)
 *   TASK_END      task, flags RELEASE, ALL. Unbinds its contexts (parked: REMOVED), progress event.
 *                 Nobody owns what it keeps until that is freed
 *   BIND          context, kind (arb_kind), list = tasks. Idempotent. Dedicated: one task;
 *                 bound to another it moves. A context is either dedicated or not: INVALID
 *                 otherwise. DOWN after SHUTDOWN
 *   UNBIND        context, list = tasks that it no longer serves, or ALL. With none left it
 *                 is UNKNOWN; parked: REMOVED. Progress event. A context or task that is
 *                 not bound: OK, nothing happens
 *   RESERVE       context, pool, bytes, reservation = its new id, flags, deadline. bytes 0: OK at
 *                 once, booked. Or list = pools, amounts = bytes of each: all or nothing,
 *                 reservation = the id of the first, the others follow by 1
 *   RELEASE       reservation. The owner's books change, whoever sends it
 *   RESIZE        reservation, bytes: less, at once; more: as RESERVE of the difference,
 *                 context waits (flags, deadline)
 *   SEAL          reservation: it is an object now, with bytes as it is (0 = as
 *                 reserved). Still pinned by its owner
 *   PIN, UNPIN    reservation, task (0 = its owner). A task pins it or does not: no count. Unpinned
 *                 by all: reclaimable (sealed or not: an UNPIN says that it may go).
 *                 PIN of a spilled one: context waits as in RESERVE for its bytes (flags,
 *                 deadline), also for those that leave while it waits; OK: none of it is away. It
 *                 pins while it waits, and no longer where it does not end with OK
 *   OWN           reservation, task: its owner from now on (a lease that serves another, a ghost)
 *   SPILLED       reservation, bytes that really left the pool: answers ARB_REPLY_SPILL; or comes
 *                 unasked. 0: it could not be. More than one may come; flags ALL: the job has ended
 *                 whatever is left of it. Bytes that could not be spilled do not count as
 *                 reclaimable any more, until the reservation changes (UNPIN said again will do)
 *   READY         context, deadline: after RETRY or SPLIT. RUNNING: OK, nothing happens
 *   RETRY_BEGIN, RETRY_END   context; RETRY_END value 1 = the attempt succeeded, 0 = it did not
 *   WAIT_ON       context (dedicated only), kind (arb_wait), other = task waited for, 0
 *   WAIT_OFF      context
 *   SPILL_BEGIN, SPILL_END   context: traffic between is not footprint
 *   OSBLOCK       context, value 1 = the kernel says that it sleeps
 *   CANCEL        context, or task: what is withheld completes with CANCELED. kind =
 *                 ARB_TIMEDOUT: with that instead
 *   INJECT        context or task, kind (arb_inject), value = count (0 clears), extra = skip, pool
 *                 (0 = any). INVALID: neither is known
 *   TICK          the time that passes: deadlines, silence, possible stalls. Any
 *                 message looks at deadlines too
 *   SHUTDOWN      all that is withheld: REMOVED; nobody is bound; binds answer DOWN
 *
 * Any message of a context other than NONBLOCK and SPILL reserves clears its wait mark (CANCEL,
 * INJECT and OSBLOCK are about one, not of it), whatever its answer: a caller does not wait. Of a
 * context with a withheld reply RESERVE (but NONBLOCK, SPILL), RESIZE, PIN, READY, RETRY_*, WAIT_*,
 * SPILL_* and BIND are INVALID. Reserves without a context, or of one that is not bound, are owned
 * by nobody, rank above all and never wait.
 */
enum arb_op {
	ARB_OP_NONE,
#define OP(NAME, form, call) ARB_OP_##NAME,
#include "arbiter.def"
};
const char *arb_op_name(enum arb_op op); /* "RESERVE" */

struct arb_message {
	enum arb_op op;
	uint32_t flags;
	int kind;
	uint64_t context, task, other, pool, reservation;
	uint64_t bytes, extra;
	int64_t value;
	uint64_t deadline_ns; /* on the clock of now_ns; 0 = none */
	const char *name;     /* NULL = none */
	const uint64_t *list; /* n_list <= ARB_LIST_MAX */
	const uint64_t *amounts;
	uint32_t n_list;
	struct arb_group *group; /* that gets what it makes; NULL = none */
	struct arb_tag tag;
};

enum arb_reply_kind {
	/* a withheld call of context has completed with outcome.
	 * reservation: which one it asked for */
	ARB_REPLY_DONE = 1,
	/*
	 * Start to spill this reservation: bytes of it at least are wanted; answer with SPILLED.
	 * Said again of one that is being spilled: so many in all. bytes 0: not wanted any more.
	 * A job that can still be stopped is stopped, without an answer (C04); one that cannot
	 * says SPILLED with what left.
	 */
	ARB_REPLY_SPILL,
};

struct arb_reply {
	enum arb_reply_kind kind;
	enum arb_outcome outcome;
	uint64_t context, pool, reservation, bytes;
	struct arb_group *group; /* the context's, or the reservation's */
	struct arb_tag tag;
	/* NOMEM, SPLIT: who held what, a sentence (valid until the next
	 * step); NULL = nothing to say */
	const char *why;
};

int arb_new(struct arb **ret); /* 0, -ENOMEM */
struct arb *arb_free(struct arb *a);

/*
 * One message at now_ns, which never runs backwards. Returns its own outcome; *ret are the replies
 * that it set free for others (and for itself, where it was PENDING for a moment only: then
 * ARB_PENDING is returned and its ARB_REPLY_DONE is among them), valid until the next step, in the
 * order in which they must be sent. -ENOMEM: nothing was changed.
 */
int arb_step(struct arb *a, const struct arb_message *m, uint64_t now_ns,
	     const struct arb_reply **ret, size_t *ret_n);

/* The earliest time at which a TICK is needed for a deadline; 0 = none waits with one. Ticks every
 * tick_ms are needed besides while anybody is parked. */
uint64_t arb_next_deadline(const struct arb *a);
/* Contexts with a withheld reply. */
size_t arb_n_parked(const struct arb *a);

/* ---- inspection: copies, in the order of creation -------------------------------------------- */

struct arb_pool_info {
	uint64_t id, capacity, spill_reserve;
	uint64_t used;        /* booked: pinned + reclaimable + spill */
	uint64_t reclaimable; /* of it, unpinned; what could not be spilled does not count */
	uint64_t spilling;    /* of it, being spilled */
	uint64_t spilled;     /* left the pool by spills, not freed yet */
	uint64_t max_used;
	uint32_t n_reservations, n_waiting; /* BLOCKED and ALLOC */
	uint32_t n_rolled;                  /* rolled back there, and not let out so far */
	uint64_t closed_by; /* context that closed it by the bypass rule; 0 = open */
	uint64_t n_grants, n_waits, n_retries, n_splits, n_toobig, n_bypassed;
	enum arb_pool_kind kind;
	char name[ARB_NAME_MAX + 1];
};

struct arb_context_info {
	uint64_t id;
	enum arb_state state;
	enum arb_kind kind;
	uint64_t task; /* the one, or of helpers and services the best */
	uint32_t n_tasks;
	int64_t priority;
	uint64_t since_ns;    /* in this state */
	uint64_t pool, bytes; /* what it waits for; 0 */
	uint64_t held, need;  /* bytes of its tasks in that pool; what its attempt needs */
	uint64_t deadline_ns; /* 0 = none */
	uint32_t n_passed;    /* times that it was passed */
	uint32_t n_outcomes;  /* against the retry limit */
	enum arb_wait wait;   /* 0 = no wait mark */
	bool os_blocked, in_retry, in_spill;
	const char *reason; /* static: why it is parked */
};

struct arb_task_info {
	uint64_t id;
	int64_t priority;
	uint64_t begun_ns;
	uint32_t n_contexts;
	uint64_t held; /* over all pools, spilled not counted */
	bool stalled;  /* all its contexts are */
	char name[ARB_NAME_MAX + 1];
};

/* Per task and pool; pool 0: summed (max: the largest). Of a task that ended too, while
 * it is among the last 1000. */
struct arb_stats {
	uint64_t n_retries, n_splits, n_grants;
	/* the last includes a wait in progress and is never reset */
	uint64_t blocked_ns, lost_ns, blocked_or_lost_ns;
	uint64_t current, max; /* bytes booked to it */
	uint64_t max_used;     /* the pool's used at its own grants, highest */
	uint64_t footprint;    /* highest current outside spill brackets */
	uint64_t need;
};

struct arb_totals {
	uint64_t n_messages, n_retries, n_splits, n_nomem, n_toobig, n_timeouts, n_canceled,
		n_removed, n_progress, n_detects;
	uint32_t n_pools, n_tasks, n_contexts, n_parked;
	uint64_t n_reservations;
	bool down;
};

/* false: no such one. */
bool arb_pool(const struct arb *a, uint64_t id, struct arb_pool_info *ret);
bool arb_context(const struct arb *a, uint64_t id, struct arb_context_info *ret);
bool arb_task(const struct arb *a, uint64_t id, struct arb_task_info *ret);
bool arb_stats(struct arb *a, uint64_t task, uint64_t pool, uint64_t now_ns, unsigned flags,
	       struct arb_stats *ret);
/* Bytes of a reservation (0 while spilled), its owner, whether it is reclaimable. */
struct arb_reservation_info {
	uint64_t id, pool, owner, bytes, spilled;
	bool sealed, reclaimable, spilling;
};
bool arb_reservation(const struct arb *a, uint64_t id, struct arb_reservation_info *ret);
/* NULL: no such one, or it is only asked for. */
struct arb_hold *arb_hold(const struct arb *a, uint64_t id);
void arb_unwant(struct arb_hold *h);
/* It lives on without its client. */
void arb_leave(struct arb_item *i, enum arb_sort sort);
/* The bytes that a task owns in the pools of partitions, as arb_group's. */
void arb_owned(const struct arb *a, uint64_t task, uint64_t ret[2]);
void arb_totals(const struct arb *a, struct arb_totals *ret);
/* Each in turn; fn returns false to stop. It must not step. */
void arb_each_pool(const struct arb *a, bool (*fn)(void *arg, const struct arb_pool_info *i),
		   void *arg);
void arb_each_context(const struct arb *a, bool (*fn)(void *arg, const struct arb_context_info *i),
		      void *arg);
void arb_each_task(const struct arb *a, bool (*fn)(void *arg, const struct arb_task_info *i),
		   void *arg);
/* Of the last 1000 that ended, in that order. */
void arb_each_ended(const struct arb *a, bool (*fn)(void *arg, const struct arb_task_info *i),
		    void *arg);
/* "<what> <bytes> of pool p, which has ...", and who holds most of it; valid until the next
 * step. NULL: no such pool. */
const char *arb_holders(struct arb *a, uint64_t pool, const char *what, uint64_t bytes);
int64_t arb_knob(const struct arb *a, enum arb_knob k);

/* ---- the log: the last transitions ----------------------------------------------------------- */

#define ARB_LOG_SIZE 1000u

struct arb_transition {
	uint64_t number, time_ns; /* 1, 2, … */
	enum arb_op op;           /* of the message in which it happened */
	uint64_t by;              /* context of that message; 0 = none */
	uint64_t context, task;
	enum arb_state from, to;
	enum arb_outcome outcome; /* delivered with it; ARB_OK where none was */
	uint64_t pool, bytes;
	const char *note; /* static */
};
/* After number since, oldest first. */
void arb_log(const struct arb *a, uint64_t since,
	     bool (*fn)(void *arg, const struct arb_transition *t), void *arg);

#endif
