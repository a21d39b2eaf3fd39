/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbcore.h: what the files of the arbiter's core share, and nobody else sees.
 *
 *   arbtree.h      an ordered set with sums
 *   arbslab.c      memory; the lists of clients
 *   arbline.c      those who wait in a pool, by rank; those who rolled back in it, by rank; does a
 *                  request fit, and is its pool open to it? What must be looked at before a step
 *                  ends; the log of transitions
 *   arbstuck.c     requests of stalled tasks in a pool, by size: which can never be met?
 *   arbledger.c    reservations, pins, accounts: whose bytes are where, which can be spilled
 *   arbtask.c      tasks, and who of them is stalled
 *   arbpark.c      a context's state: withheld calls, their outcomes, deadlines, times and metrics
 *   arbseen.c      inspection; who held what, as a sentence
 *   arbask.c       requests for bytes, from their checks to their booking; outcomes on demand
 *   arbbind.c      contexts and the tasks that they serve; the end of both
 *   arbpump.c      who gets bytes now: the pump, progress; who rolls back or splits where none can
 *                  go on; attempts: rolled back, let out again, split
 *   arbiter.c      arb_step(): one message; pools; what becomes of a reservation
 *
 * A file calls only those that stand above it here. A step: what a message changes is booked at
 * once and notes what must be looked at (a pool's dirty, look, progress); arb_step() then looks
 * until nothing is left. Nothing calls back.
 */
#ifndef ARBCORE_H
#define ARBCORE_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <utlist.h>

#include "arbiter.h"
#include "arbtree.h"
#include "deadlines.h"
#include "idtable.h"
#include "macros.h"

/* Chains of 10 are what uthash puts up with: each link is a line of memory that was seen long ago.
 * Measured, with 10,000 contexts. */
#undef HASH_BKT_CAPACITY_THRESH
#define HASH_BKT_CAPACITY_THRESH 5U

#define ARB_N_INJECT (ARB_INJECT_TIMEDOUT + 1)
#define ARB_N_KNOBS  (ARB_KNOB_OS_PROBE + 1)
#define ARB_N_ENDED  1000u /* tasks that ended and are still remembered */
#define ARB_WHY_SIZE 512u
#define ARB_LARGEST  (INT64_MAX / 4) /* bytes that are said to be there: sums of a few fit */

/* The order of service: the lower rank is served first. */
struct arb_rank {
	int64_t priority; /* larger is better */
	uint64_t task_seq, context_seq;
	bool service; /* a class above all */
};

/* A task's bytes in a pool. */
struct arb_account {
	struct arb_task *task; /* NULL: the pool's nobody */
	struct arb_pool *pool;
	struct arb_account *next;          /* of the task */
	struct arb_account *pprev, *pnext; /* of the pool */
	struct arb_reservation *owned;     /* by own_prev, own_next */
	/* the smallest stuck request that is booked to it: whose grant revives the task */
	struct arb_want *lead;
	uint64_t pinned;   /* bytes that are not reclaimable because of it */
	uint64_t promise;  /* the need with which one of its contexts was let out; 0 = none */
	uint64_t promised; /* of it, not taken so far */
	const struct arb_context *promised_to;
	uint64_t active; /* current without what was made between spill brackets */
	struct arb_stats stats;
};

struct arb_pin { /* of a task that is not the owner */
	struct arb_reservation *res;
	struct arb_account *account;
	struct arb_pin *prev, *next;   /* of the reservation */
	struct arb_pin *tprev, *tnext; /* of the task */
};

/* These structs begin with the fields that most messages read, cache line by cache line. */
struct arb_reservation {
	UT_hash_handle hh;
	uint64_t id;
	struct arb_pool *pool;
	struct arb_account *owner;
	/* whose pinned it counts in; NULL = nobody pins it, and it may be spilled */
	struct arb_account *holder;
	struct arb_reservation *own_prev, *own_next;
	uint64_t bytes;
	struct arb_pin *pins;
	struct arb_context *askers; /* whose withheld RESIZE or PIN is for it */
	uint64_t spilled;
	bool owner_pins, sealed, spill, aside /* made between spill brackets */;
	bool refused;             /* could not be spilled: its owner holds it until it changes */
	bool job;                 /* is being spilled */
	struct arbtree_node node; /* of the pool's victims: reclaimable, no job */
	int64_t priority;         /* its owner's: the lowest is spilled first */
	uint64_t used_seq;        /* and of these the one that was unpinned longest ago */
	uint64_t wanted;          /* of a job: bytes still to come */
	struct arb_reservation *job_prev, *job_next; /* of the pool's jobs */
	struct arb_hold hold;
};

/* One pool of a request. While it is parked, node is in the pool's waiting line; what was rolled
 * back is in the line rolled. */
struct arb_want {
	struct arb_context *context;
	struct arb_rank rank; /* the context's, for the walks */
	struct arb_pool *pool;
	struct arb_account *account; /* to be booked to */
	struct arb_reservation *res; /* made already, not booked; or the one that grows */
	uint64_t bytes;
	uint64_t need; /* what the attempt held, and these */
	struct arbtree_node node;
	int64_t weight; /* bytes; rolled: need less what its tasks have there */
	int64_t least, least_blocked, most, most_alloc, sum;
	int64_t passed, passed_noted, most_passed; /* relative to what is noted above */
	bool may_close;                            /* its pool, when it was passed too often */
	bool alloc;                                /* spills were started for it */
	bool fresh; /* ALLOC: nobody freed so far; in the pool's list */
	bool holds; /* stuck: its account has pinned bytes */
	struct arb_want *fprev, *fnext;
	struct arbtree_node stuck; /* of the pool's stuck, by size */
	uint64_t gain;             /* pinned bytes that come back when it is met */
	uint64_t sum_gain;
	int64_t peak;           /* largest bytes less the gain of all before, in the subtree */
	struct arb_want *worst; /* lowest rank in the subtree whose task holds something */
};

enum arb_line { /* of its pools */
	ARB_LINE_NONE,
	ARB_LINE_WAITING, /* its ask */
	ARB_LINE_ROLLED   /* its attempt */
};

enum arb_call {
	ARB_CALL_NONE,
	ARB_CALL_RESERVE,
	ARB_CALL_RESIZE,
	ARB_CALL_PIN,
	ARB_CALL_READY
};

struct arb_ask { /* wants of one request; where it is one: a place that is always there */
	struct arb_want *want, *one;
	uint32_t n;
};

/* Walks over the wants of a request. w is declared:
 * NOLINTBEGIN(bugprone-macro-parentheses) */
#define ARB_EACH_WANT(w, ask) \
	for (struct arb_want *w = (ask)->want; w < (ask)->want + (ask)->n; w++)
/* NOLINTEND(bugprone-macro-parentheses) */

struct arb_binding {
	struct arb_context *context;
	struct arb_task *task;
	struct arb_binding *cnext;         /* of the context, best task first */
	struct arb_binding *tprev, *tnext; /* of the task */
};

struct arb_injection {
	uint64_t count, skip, pool;
};

/* The pin that a withheld PIN call waits for; empty once that was unpinned. */
struct arb_call_pin {
	struct arb_pin *pin; /* a task's */
	bool owner;          /* or the owner's */
	/* that was not there before: it goes with the call, if no other's
	 * withheld PIN is for it too */
	bool made;
};

struct arb_context {
	UT_hash_handle hh;
	uint64_t id;
	enum arb_state state;
	enum arb_call call;
	enum arb_line line;
	enum arb_wait wait;
	bool os_blocked, in_retry, in_spill;
	bool stalled, maybe; /* as it was counted in its tasks */
	enum arb_kind kind;
	struct arb_binding *bindings;
	struct arb_ask *ask;     /* the withheld request */
	struct arb_ask *attempt; /* what was rolled back: n 0 = nothing */
	uint64_t lost_ns, run_ns;
	struct arb_ask asks[2];
	uint64_t since_ns, parked_ns;
	struct arb_rank rank;
	uint64_t call_reservation; /* what the withheld call is for */
	struct deadline deadline;  /* at 0: none */
	const char *reason;
	uint64_t seq;
	uint32_t n_tasks, n_outcomes;
	struct arb_want ones[2]; /* of asks */
	struct arb_call_pin call_pin;
	struct arb_context *aprev, *anext; /* of the askers of a reservation */
	uint64_t wait_task;
	struct arb_context *wprev, *wnext; /* those that wait for a task */
	uint64_t outcome_era, solo_epoch;
	struct arb_injection inject[ARB_N_INJECT];
	struct arb_item item;
	struct arb_tag tag; /* of the withheld call */
};

struct arb_task {
	UT_hash_handle hh; /* of the living, or of the ended */
	uint64_t id;
	int64_t priority;
	struct arb_account *accounts;
	struct arb_binding *bindings;
	uint32_t n_waiting;                         /* of its contexts: in a line */
	uint32_t n_own, n_own_stalled, n_own_maybe; /* dedicated contexts */
	uint32_t n_help, n_help_stalled, n_help_maybe;
	bool stalled, certain, maybe;
	uint32_t n_marks_pool, n_marks_task, n_marks_external;
	uint64_t seq;
	struct arb_pin *pins;
	uint64_t begun_ns;
	struct arb_item item;
	struct arb_stats former; /* in pools that are gone */
	struct arb_injection inject[ARB_N_INJECT];
	char name[ARB_NAME_MAX + 1];
};

struct arb_pool {
	UT_hash_handle hh;
	uint64_t id;
	enum arb_pool_kind kind;
	int64_t capacity, spill_reserve;
	int64_t used;        /* all that is booked */
	int64_t spill_used;  /* of it, by the spill path */
	int64_t reclaimable; /* of it, what nobody holds */
	int64_t wanted;      /* bytes that jobs are still to bring */
	int64_t alloc;       /* bytes for which ALLOC contexts wait */
	int64_t stuck_bytes; /* pinned by stalled tasks and by nobody */
	int64_t promised;
	uint64_t spilled, max_used;
	struct arb_account nobody;
	struct arb_account *accounts;
	struct arbtree waiting, rolled, stuck, victims;
	/* the best that waits and was passed too often; looked for when the line has changed */
	struct arb_want *closer;
	bool closer_known;
	struct arb_reservation *jobs;
	struct arb_want *fresh; /* ALLOC, nobody freed */
	uint32_t n_reservations, n_waiting, n_rolled;
	uint32_t n_several; /* of those who wait: with a request of several pools */
	uint64_t n_grants, n_waits, n_retries, n_splits, n_toobig, n_bypassed;
	struct arb_pool *dirty_next;
	bool dirty, freed, over, look;
	bool searched;   /* stuck is kept up to date */
	uint32_t n_calm; /* times in a row that it was kept for nothing */
	struct arb_item item;
	char name[ARB_NAME_MAX + 1];
};

/* Memory of objects of one size, many in a piece. */
struct arbslab {
	size_t size; /* of an object */
	struct arbslab_free {
		struct arbslab_free *next;
	} * free;
	char *next, *end; /* of the youngest piece: never used so far */
	size_t n_piece;   /* objects of the youngest piece */
	struct arbslab_piece *pieces;
};

/* One of each for all that comes and goes with messages. */
struct arb_slabs {
	struct arbslab contexts, tasks, bindings, accounts, reservations, pins;
};

struct arb {
	struct arb_slabs slabs;
	struct arb_pool *pools;
	struct arb_task *tasks, *ended;
	uint32_t n_ended;
	struct arb_context *contexts;
	struct arb_reservation *reservations;
	struct arb_context *task_waiters;
	uint64_t seq, tree_seq;
	int64_t next_priority;
	int64_t knobs[ARB_N_KNOBS];
	uint64_t now_ns;
	/* who is stalled */
	uint32_t n_live_tasks, n_stalled, n_certain, n_maybe; /* of the tasks with contexts */
	uint32_t n_parked, n_blocked, n_bufn;
	uint32_t n_injections; /* were set, ever */
	/* D0: the one that is ALLOC below who closed its pool, since all were stalled. Its spills
	 * keep it from being so, so there is no second. */
	struct arb_context *past;
	uint32_t n_searched; /* pools whose tree of stuck requests is kept */
	uint64_t silent;     /* ticks since anybody was heard */
	/* progress: epoch allows one solo run more, era resets the limit of outcomes */
	uint64_t epoch, era;
	/* what this step must look at */
	struct arb_pool *dirty;
	bool progress, look, early_done;
	struct deadline *deadlines;
	/* replies */
	struct arb_reply *out;
	size_t n_out, out_size;
	size_t n_unpinned; /* reservations that may need a reply of their own */
	char why[2][ARB_WHY_SIZE];
	unsigned n_why;
	const struct arb_message *message;
	struct arb_transition log[ARB_LOG_SIZE];
	uint64_t n_log;
	struct arb_totals totals;
	bool down;
};

/* ---- arithmetic of a pool -------------------------------------------------------------------- */

/* The most that everything but the spill path may ever book. */
static inline int64_t arbpool_limit(const struct arb_pool *p)
{
	return p->capacity - MAX(p->spill_reserve, p->spill_used);
}

/* The largest request that is not TOOBIG. A request for 0 bytes always fits. */
static inline int64_t arbpool_most(const struct arb_pool *p)
{
	return MAX(p->capacity - p->spill_reserve, 0);
}

static inline int64_t arbpool_booked(const struct arb_pool *p)
{
	return p->used - p->spill_used;
}

/* Negative: over its capacity, which was more once. */
static inline int64_t arbpool_free(const struct arb_pool *p)
{
	return arbpool_limit(p) - arbpool_booked(p);
}

/* Free, and what may be spilled. */
static inline int64_t arbpool_reach(const struct arb_pool *p)
{
	return arbpool_free(p) + p->reclaimable;
}

static inline int64_t arbpool_pinned(const struct arb_pool *p)
{
	return arbpool_booked(p) - p->reclaimable;
}

/* The bytes for an attempt: those that nobody has pinned and nobody was promised. */
static inline int64_t arbpool_room(const struct arb_pool *p)
{
	return arbpool_limit(p) - arbpool_pinned(p) - p->promised;
}

static inline int arb_rank_cmp(const struct arb_rank *a, const struct arb_rank *b)
{
	if (a->service != b->service)
		return a->service ? -1 : 1;
	if (a->priority != b->priority)
		return a->priority > b->priority ? -1 : 1;
	if (a->task_seq != b->task_seq)
		return a->task_seq < b->task_seq ? -1 : 1;
	return a->context_seq < b->context_seq ? -1 : a->context_seq > b->context_seq;
}

static inline bool arbcontext_parked(const struct arb_context *c)
{
	return c->call != ARB_CALL_NONE;
}

/* The memory that it waits for, or was rolled back with. NULL: neither. */
static inline struct arb_want *arbcontext_about(const struct arb_context *c)
{
	return c->ask->n ? c->ask->want : c->attempt->n ? c->attempt->want : NULL;
}

/* ---- by their ids; NULL: there is none ------------------------------------------------------- */

#define FINDER(object)                                                                          \
	static inline struct arb_##object *arb##object##_find(const struct arb *a, uint64_t id) \
	{                                                                                       \
		struct arb_##object *found;                                                     \
                                                                                                \
		HASH_FIND(hh, a->object##s, &id, sizeof(id), found);                            \
		return found;                                                                   \
	}

FINDER(pool)
FINDER(task)
FINDER(context)

/* NULL also for a reservation that is asked for and has no owner yet. */
static inline struct arb_reservation *arbreservation_find(const struct arb *a, uint64_t id)
{
	struct arb_reservation *r;

	HASH_FIND(hh, a->reservations, &id, sizeof(id), r);
	return r && r->owner ? r : NULL;
}

/* ---- arbslab.c ------------------------------------------------------------------------------- */

/* It is of the message's group, if that has one. */
void arbitem_enter(const struct arb *a, struct arb_item *i, enum arb_sort sort, uint64_t id);
void arbslab_init(struct arbslab *s, size_t size);
void arbslab_deinit(struct arbslab *s);            /* with all that is in it */
void *arbslab_get(struct arbslab *s);              /* zeroed; NULL: no memory */
void arbslab_put(struct arbslab *s, void *object); /* NULL is none */

/* ---- arbline.c ------------------------------------------------------------------------------- */

void arbline_insert(struct arb *a, struct arbtree *line, struct arb_want *w, int64_t weight);
void arbline_remove(struct arbtree *line, struct arb_want *w);
void arbline_weigh(struct arb_want *w, int64_t weight, bool alloc);
/* blocked: of those that are not ALLOC. */
struct arb_want *arbline_best_fit(const struct arbtree *line, int64_t limit,
				  const struct arb_want *after, bool blocked);
/* alloc: of those that are ALLOC. */
struct arb_want *arbline_over(const struct arbtree *line, int64_t limit, bool alloc);
struct arb_want *arbline_worst_blocked(const struct arbtree *line);
struct arb_want *arbline_worst_alloc(const struct arbtree *line,
				     const struct arb_context *but); /* of others than but */
struct arb_want *arbline_best(const struct arbtree *line);
/* The sum of the requests of a better rank. */
int64_t arbline_above(const struct arbtree *line, const struct arb_rank *rank);
int64_t arbline_most(const struct arbtree *line); /* largest weight; INT64_MIN: nobody is there */
struct arb_want *arbline_next(const struct arb_want *w);
int64_t arbline_passed(const struct arb_want *w);
struct arb_want *arbline_closer(const struct arbtree *line, int64_t limit);

enum arb_fit {
	ARB_FIT_NOT,
	ARB_FIT_SPILL, /* into what is free and reclaimable */
	ARB_FIT_FREE
};
enum arb_fit arbfit_ask(const struct arb_ask *ask);
bool arbfit_closed(const struct arb *a, struct arb_pool *p, const struct arb_rank *rank);
bool arbfit_ask_closed(const struct arb *a, const struct arb_context *c, const struct arb_ask *ask);
void arbfit_passes(struct arb_pool *p, const struct arb_rank *rank);

void arbnote_dirty(struct arb *a, struct arb_pool *p);          /* somebody may be helped in it */
void arbnote_newcomer(struct arb *a, const struct arb_want *w); /* it is in the line now */
void arbnote_progress(struct arb *a);
void arbnote_transition(struct arb *a, const struct arb_context *c, enum arb_state from,
			enum arb_state to, enum arb_outcome o, const char *note);

/* ---- arbstuck.c ------------------------------------------------------------------------------ */

/* The task's bytes, requests or who of it runs have changed. */
void arbstuck_refresh(struct arb *a, struct arb_task *t);
void arbstuck_drop(struct arb_want *w);
/* Of two or more requests that can never be met while all others give back everything, the lowest
 * that holds something; or NULL. */
struct arb_want *arbstuck_victim(struct arb *a, struct arb_pool *p);

/* ---- arbledger.c ----------------------------------------------------------------------------- */

struct arb_account *arbledger_find(const struct arb_task *t, const struct arb_pool *p);
struct arb_account *arbledger_account(struct arb *a, struct arb_task *t,
				      struct arb_pool *p); /* made if need be; NULL: no memory */
/* not booked, and found by its id; NULL: no memory */
struct arb_reservation *arbledger_make(struct arb *a, struct arb_pool *p, uint64_t id);
void arbledger_forget(struct arb *a, struct arb_reservation *r); /* one that was not booked */
void arbledger_book(struct arb *a, struct arb_reservation *r, struct arb_account *owner,
		    uint64_t bytes);
void arbledger_grow(struct arb *a, struct arb_reservation *r, uint64_t bytes);
void arbledger_shrink(struct arb *a, struct arb_reservation *r, uint64_t bytes);
void arbledger_leave(struct arb *a, struct arb_reservation *r, uint64_t bytes); /* spilled */
void arbledger_refuse(struct arb *a, struct arb_reservation *r);
void arbledger_seal(struct arb_reservation *r);
void arbledger_destroy(struct arb *a, struct arb_reservation *r); /* nobody asks for it */
void arbledger_own(struct arb *a, struct arb_reservation *r, struct arb_account *to);
/* after owner_pins or pins have changed; false: nobody else holds it now */
bool arbledger_repin(struct arb *a, struct arb_reservation *r);
struct arb_pin *arbledger_find_pin(const struct arb_reservation *r, const struct arb_task *t);
void arbledger_drop_pin(struct arb *a, struct arb_pin *pin);
void arbledger_owner_unpins(struct arb_reservation *r); /* to be repinned */
void arbledger_promise(struct arb_account *account, const struct arb_context *to, uint64_t need);
uint64_t arbledger_pinned(const struct arb_context *c, const struct arb_pool *p); /* by its tasks */
/* The bytes that a rolled-back want lacks: its need without what its tasks pin there or were
 * promised, which never keeps their attempt from being let out. */
int64_t arbledger_lacking(const struct arb_want *w);
void arbspill_add(struct arb *a, struct arb_reservation *r); /* it is reclaimable */
void arbspill_remove(struct arb *a, struct arb_reservation *r);
void arbspill_end_job(struct arb_reservation *r);
/* as many jobs as ALLOC contexts wait for */
void arbspill_balance(struct arb *a, struct arb_pool *p);

/* ---- arbtask.c ------------------------------------------------------------------------------- */

int arbtask_make(struct arb *a, uint64_t id, int64_t priority, const char *name,
		 struct arb_task **ret);
int arbtask_begin(struct arb *a, const struct arb_message *m, enum arb_outcome *ret);
void arbtask_count(struct arb *a, struct arb_context *c); /* c's state or mark has changed */
/* c's wait mark comes (1) or goes (-1) */
void arbtask_mark(struct arb_task *t, const struct arb_context *c, uint32_t by);
void arbtask_eval(struct arb *a, struct arb_task *t);
bool arbtask_all_certain(const struct arb *a);
/* It has ended; its name and numbers are kept for a while. An older one of the same id is
 * forgotten. */
void arbtask_remember(struct arb *a, struct arb_task *t);
void arbtask_free(struct arb *a, struct arb_task *t);

/* ---- arbpark.c ------------------------------------------------------------------------------- */

void arbpark_state(struct arb *a, struct arb_context *c, enum arb_state to, enum arb_outcome o,
		   const char *note);
void arbpark_park(struct arb *a, struct arb_context *c, enum arb_call call, uint64_t deadline_ns);
void arbpark_complete(struct arb *a, struct arb_context *c, enum arb_outcome o, const char *why);
void arbpark_line_up(struct arb *a, struct arb_context *c, enum arb_line line, bool alloc);
void arbpark_leave_line(struct arb *a, struct arb_context *c);
void arbpark_set_alloc(struct arb *a, struct arb_context *c, bool alloc);
void arbpark_cancel(struct arb *a, struct arb_context *c, enum arb_outcome o);
/* the ask is over; what was not booked goes */
void arbpark_clear(struct arb *a, struct arb_context *c);
void arbpark_take_back_pin(struct arb *a, struct arb_reservation *r, struct arb_call_pin what);
/* its attempt is over: no need, no promise */
void arbpark_end_attempt(struct arb *a, struct arb_context *c);
void arbpark_end_promise(struct arb_context *c);
void arbpark_lose(struct arb *a, struct arb_context *c, struct arb_account *account);
int arbpark_room(struct arb *a, size_t more);                                  /* for replies */
void arbclock_set(struct arb *a, struct arb_context *c, uint64_t deadline_ns); /* 0 = none */
enum arb_outcome arbclock_tick(struct arb *a);

/* ---- arbask.c -------------------------------------------------------------------------------- */

/* c: the sender, NULL = nobody who is bound */
int arbask_reserve(struct arb *a, struct arb_context *c, const struct arb_message *m,
		   enum arb_outcome *ret);
int arbask_resize(struct arb *a, struct arb_context *c, const struct arb_message *m,
		  enum arb_outcome *ret);
int arbask_pin(struct arb *a, struct arb_context *c, const struct arb_message *m,
	       enum arb_outcome *ret);
enum arb_outcome arbask_inject(struct arb *a, const struct arb_message *m);
/* it fits: booked */
void arbask_grant(struct arb *a, struct arb_context *c, const struct arb_ask *ask);
void arbask_enter(struct arb *a, struct arb_context *c); /* its withheld ask: granted, or in line */
/* more of it is away: PINs wait for all of that */
void arbask_follow(struct arb *a, struct arb_reservation *r);

/* ---- arbbind.c ------------------------------------------------------------------------------- */

int arbbind_bind(struct arb *a, const struct arb_message *m, enum arb_outcome *ret);
enum arb_outcome arbbind_unbind(struct arb *a, const struct arb_message *m);
enum arb_outcome arbbind_end_task(struct arb *a, const struct arb_message *m);
/* unknown from now on; what is withheld: REMOVED */
void arbbind_forget(struct arb *a, struct arb_context *c);
void arbbind_free(struct arb *a, struct arb_context *c);
/* It goes, and calls that are withheld for it are CANCELED. */
void arbbind_destroy(struct arb *a, struct arb_reservation *r);

/* ---- arbseen.c ------------------------------------------------------------------------------- */

void arbseen_add(struct arb_stats *ret, const struct arb_stats *s);
const char *arbseen_why(struct arb *a, const struct arb_ask *ask);

/* ---- arbpump.c ------------------------------------------------------------------------------- */

/* Looks at what was noted, until nothing is left: grants, roll backs, splits. */
void arbpump_settle(struct arb *a);
enum arb_outcome arbpump_ready(struct arb *a, struct arb_context *c, const struct arb_message *m);
enum arb_outcome arbpump_retry_end(struct arb *a, struct arb_context *c, bool ok);

#endif
