/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbiter.h: reserve memory before it is taken; wait, roll back, or split where there is not enough, instead of failing.
 *
 * With shmstored and its arbiter, tasks of all processes that use a partition are given its bytes one after the other: who does not
 * fit waits. Where waiting cannot help, because all wait for each other, the task of the lowest priority is told RETRY: it gives back what
 * this attempt took and begins again when all of it fits. Where one task alone is too large it is told SPLIT. So a job that
 * fits by pieces ends, slower, instead of dying of -ENOSPC. docs/arbiter.md has the rules, the states and examples.
 *
 *   store       any that is open and not read-only. With SHMSTORE_OPEN_ARBITRATE put, create and promotion (of get, too) reserve by themselves
 *               for bound contexts, and return outcomes, > 0, where they are not given it. An adoption is a link: it takes nothing
 *   task        a scope of work: begins, holds bytes, ends. Carries the priority: larger is served first
 *   context     what waits: by default the calling thread; or one of your own (a coroutine, a key of a scheduler)
 *   pool        SHMSTORE_ARB_PARTITION: the store's partition. Or private ones: a budget of this process
 *
 * Returns: 0, an outcome (> 0: enum shmstore_arb_outcome), or -errno as in shmstore.h. -ENOTSUP: no daemon, or its arbiter is off; nothing is reserved then and
 * calls of the store are as without arbitration: -ENOSPC when it is full. A daemon that dies completes all waits with SHMSTORE_ARB_DOWN. With it
 * went all tasks, bindings and private pools: what is called for those returns DOWN until they are begun, bound, made anew. What was
 * reserved may be released as ever.
 *
 * Threads: all calls may be made by many threads at once, but for one context: its calls never overlap (cancel excepted). Without a context (NULL) a call is of
 * the calling thread's own one, which ends with the thread. Fork: a child has no contexts, -EPERM. The library starts no thread.
 */
#ifndef SHMSTORE_ARBITER_H
#define SHMSTORE_ARBITER_H

#include "shmstore.h"

#ifdef __cplusplus
extern "C" {
#endif

struct shmstore_arb_context;

/* Numbers as shmstored's. */
enum shmstore_arb_outcome {
	SHMSTORE_ARB_OK = 0,
	SHMSTORE_ARB_PENDING = 1, /* only with SHMSTORE_ARB_ASYNC: shmstore_arb_next() will give its outcome */
	SHMSTORE_ARB_RETRY =
		2, /* release what this attempt reserved, call shmstore_arb_ready(), begin the attempt again */
	SHMSTORE_ARB_SPLIT = 3,    /* the same, with less work at a time */
	SHMSTORE_ARB_NOMEM = 4,    /* cannot be had; shmstore_arb_why() says who held what */
	SHMSTORE_ARB_TOOBIG = 5,   /* more than the pool's capacity */
	SHMSTORE_ARB_AGAIN = 6,    /* SHMSTORE_ARB_NONBLOCK: not now */
	SHMSTORE_ARB_TIMEDOUT = 7, /* the deadline, or the longest wait that the daemon allows, passed */
	SHMSTORE_ARB_CANCELED = 8,
	SHMSTORE_ARB_REMOVED = 9, /* the context was unbound or its task ended meanwhile */
	SHMSTORE_ARB_DOWN = 10,   /* the daemon went away, or shuts down */
	SHMSTORE_ARB_ERROR = 11,  /* injected by a test */
};
SHMSTORE_API const char *shmstore_arb_outcome_name(int outcome); /* "RETRY"; static */
/* Of the calling thread's last outcome that was not OK: a sentence of the daemon; "" where there is none. Valid until its next call. */
SHMSTORE_API const char *shmstore_arb_why(void);

#define SHMSTORE_ARB_PARTITION 1u /* pool: the store's partition */

#define SHMSTORE_ARB_NONBLOCK (1u << 0) /* AGAIN instead of waiting; no other effect */
#define SHMSTORE_ARB_SPILL    (1u << 1) /* on the spill path: never waits, may use the pool's spill reserve */
#define SHMSTORE_ARB_ASYNC    (1u << 2) /* PENDING instead of waiting in the call; needs a context of one's own */

/* Is there an arbiter behind this store now? 0 or -ENOTSUP. */
SHMSTORE_API int shmstore_arb_available(struct shmstore *s);

/* ---- pools --------------------------------------------------------------------------------------------------------- */

struct shmstore_arb_pool_info {
	uint64_t capacity, used, reclaimable, spilled, max_used;
	uint32_t n_waiting;
	uint32_t level; /* 0 nobody waits, 1 somebody does, 2 somebody was rolled back lately */
};
/* A private pool: a budget of this process. name: shown to operators. spill_reserve: bytes that only SHMSTORE_ARB_SPILL may use. */
SHMSTORE_API int shmstore_arb_pool_create(struct shmstore *s, const char *name, uint64_t capacity,
					  uint64_t spill_reserve, uint32_t *ret_pool);
SHMSTORE_API int shmstore_arb_pool_resize(struct shmstore *s, uint32_t pool, uint64_t capacity);
SHMSTORE_API int shmstore_arb_pool_remove(struct shmstore *s, uint32_t pool);
SHMSTORE_API int shmstore_arb_pool_info(struct shmstore *s, uint32_t pool, struct shmstore_arb_pool_info *ret);

/* ---- tasks and contexts -------------------------------------------------------------------------------------------- */

#define SHMSTORE_ARB_ARRIVAL INT64_MIN /* priority: earlier is higher, below every explicit one */
struct shmstore_arb_task_options {
	size_t size; /* sizeof: by SHMSTORE_ARB_TASK_OPTIONS_INIT */
	int64_t priority;
	const char *label;
	uint32_t inherit; /* task whose priority it takes over; 0 = none */
};
#define SHMSTORE_ARB_TASK_OPTIONS_INIT                                                  \
	{                                                                               \
		sizeof(struct shmstore_arb_task_options), SHMSTORE_ARB_ARRIVAL, NULL, 0 \
	}
/* o NULL: defaults. The end unbinds its contexts and releases its reservations that are no objects yet. */
SHMSTORE_API int shmstore_arb_task_begin(struct shmstore *s, const struct shmstore_arb_task_options *o,
					 uint32_t *ret_task);
SHMSTORE_API int shmstore_arb_task_end(struct shmstore *s, uint32_t task);

/* A context that is no thread. Freed with the store at the latest; freeing unbinds it. */
SHMSTORE_API int shmstore_arb_context_new(struct shmstore *s, struct shmstore_arb_context **ret);
SHMSTORE_API struct shmstore_arb_context *shmstore_arb_context_free(struct shmstore_arb_context *c);
SHMSTORE_API uint32_t shmstore_arb_context_id(const struct shmstore_arb_context *c); /* as operators see it */
/*
 * From here on the calling thread's calls without a context, and what put, create and others reserve, are of c; NULL: its own again. For those whose
 * contexts go from thread to thread. Freeing c ends it for the calling thread; other threads must have ended it before.
 */
SHMSTORE_API int shmstore_arb_use(struct shmstore *s, struct shmstore_arb_context *c);

/* Dedicated to one task: what it waits for, the task waits for. Bound to another one before, it moves. -EINVAL: is a helper. */
SHMSTORE_API int shmstore_arb_bind(struct shmstore *s, struct shmstore_arb_context *c, uint32_t task);
/* A helper of some tasks, or with service a thread that works for many and is served before all tasks. -EINVAL: is dedicated. */
SHMSTORE_API int shmstore_arb_bind_helper(struct shmstore *s, struct shmstore_arb_context *c, const uint32_t *tasks,
					  size_t n, bool service);
/* n 0: from all. */
SHMSTORE_API int shmstore_arb_unbind(struct shmstore *s, struct shmstore_arb_context *c, const uint32_t *tasks,
				     size_t n);

/* ---- reservations -------------------------------------------------------------------------------------------------- */

/* Plain data: release it once, wherever it was copied to, by any thread. */
struct shmstore_arb_reservation {
	uint64_t bytes;
	uint64_t leased; /* of them, served from a lease: the daemon knows no single ones of these */
	uint32_t id;     /* of the rest, as operators see it; 0 = there is none */
	uint32_t pool;
	uint32_t context; /* the library's: which attempt of which context it belongs to */
	uint32_t attempt;
};

/* How a call may wait. NULL: it waits, as long as the daemon lets it. */
struct shmstore_arb_how {
	struct shmstore_arb_context *context; /* NULL: the calling thread's */
	unsigned flags;                       /* SHMSTORE_ARB_* */
	uint64_t timeout_ms;                  /* 0 = the daemon's longest */
};

SHMSTORE_API int shmstore_arb_reserve(struct shmstore *s, uint32_t pool, uint64_t bytes,
				      const struct shmstore_arb_how *how, struct shmstore_arb_reservation *ret);
/* All or nothing, of several pools: pools and bytes are read from r[], ids are written there. n <= 16 */
SHMSTORE_API int shmstore_arb_reserve_many(struct shmstore *s, struct shmstore_arb_reservation *r, size_t n,
					   const struct shmstore_arb_how *how);
/* Less: at once. More: as a reserve of the difference. */
SHMSTORE_API int shmstore_arb_resize(struct shmstore *s, struct shmstore_arb_reservation *r, uint64_t bytes,
				     const struct shmstore_arb_how *how);
/* Gives it back. r->bytes becomes 0. Nothing is waited for. */
SHMSTORE_API int shmstore_arb_release(struct shmstore *s, struct shmstore_arb_reservation *r);
/* What was reserved in the partition has become memory there of bytes (by other means than this store, see shmstore_arb_spend()): it is the kernel's
 * to count from here on. What is over is given back; r->bytes becomes 0. */
SHMSTORE_API int shmstore_arb_commit(struct shmstore *s, struct shmstore_arb_reservation *r, uint64_t bytes);
/*
 * From here on what put, create and others of the calling thread take in this store, ARBITRATE or not, comes out of r, of the partition: r->bytes falls by what
 * was written. What is more than r has left is reserved as ever, where that is done at all. NULL ends it; r must live till then.
 */
SHMSTORE_API int shmstore_arb_spend(struct shmstore *s, struct shmstore_arb_reservation *r);
/* unpin: what the reservation stands for may be taken by the pool's evict call-back when others need room; AGAIN: what was leased cannot be told from the lease
 * now, it stays pinned. pin: no longer; where it was taken, waits for its bytes again. */
SHMSTORE_API int shmstore_arb_unpin(struct shmstore *s, struct shmstore_arb_reservation *r);
SHMSTORE_API int shmstore_arb_pin(struct shmstore *s, const struct shmstore_arb_reservation *r,
				  const struct shmstore_arb_how *how);

/* ---- retry --------------------------------------------------------------------------------------------------------- */

SHMSTORE_API int shmstore_arb_retry_begin(struct shmstore *s, struct shmstore_arb_context *c);
/* ok: the attempt succeeded. */
SHMSTORE_API int shmstore_arb_retry_end(struct shmstore *s, struct shmstore_arb_context *c, bool ok);
/* After RETRY or SPLIT, when all is given back: waits until the attempt may begin again. 0, SPLIT, or another outcome. */
SHMSTORE_API int shmstore_arb_ready(struct shmstore *s, const struct shmstore_arb_how *how);

/*
 * Runs attempt(item) for each of n items in turn, with RETRY and SPLIT dealt with: the items are the caller's, opaque.
 *   attempt   must be repeatable from its item; reserves, computes, returns 0, an outcome of a call of this header or of a store's, or -errno (behind
 *             which a RETRY or SPLIT that a call of this context returned is found all the same). What it reserved with its context and neither committed
 *             nor released is released where it does not return 0: before shmstore_arb_ready() is called
 *   split     puts up to max smaller items in place of one, in their order, returns how many (1: the same with less at a time), 0 = cannot be split, or
 *             -errno; takes the item over (done is not called for it) where it returns more than 0. What it reserves is not retried. NULL: nothing can be split
 *   done      an item has ended, with 0 or what ended it; told of the items that were begun and of all that came of a split. NULL: nobody wants to know
 *   save, restore   save(item) before its first attempt; restore(item) after one that was told RETRY or SPLIT, before anything else is called. NULL: either, or both
 * The contexts' calls of the calling thread are how.context's meanwhile (shmstore_arb_use()). Blocks may be nested: each deals with what its own attempt is told.
 * Returns 0; the first outcome or -errno that could not be dealt with (SPLIT: of an item that cannot be split; shmstore_arb_why() names it).
 */
struct shmstore_arb_work {
	size_t size; /* sizeof(struct shmstore_arb_work) */
	struct shmstore_arb_how how;
	int (*attempt)(void *ctx, void *item);
	int (*split)(void *ctx, void *item, void **ret_items, size_t max);
	void (*done)(void *ctx, void *item, int result);
	void (*save)(void *ctx, void *item);
	void (*restore)(void *ctx, void *item);
	void *ctx;
	uint64_t n_attempts, n_splits; /* set by the call */
};
#define SHMSTORE_ARB_SPLIT_MAX 64u
/*
 * For splits that lower a target size, as "batches of so many bytes": the next one, or 0 where that would be below min. Half of data (bytes that there
 * are; 0 = not known) where that is no more than half of target, else half of target.
 */
SHMSTORE_API uint64_t shmstore_arb_smaller(uint64_t target, uint64_t min, uint64_t data);
SHMSTORE_API int shmstore_arb_with_retry(struct shmstore *s, void *const *items, size_t n,
					 struct shmstore_arb_work *work);

/* ---- marks --------------------------------------------------------------------------------------------------------- */

enum shmstore_arb_wait {
	SHMSTORE_ARB_WAIT_POOL = 1,     /* for a helper of its own task */
	SHMSTORE_ARB_WAIT_TASK = 2,     /* for another task: target */
	SHMSTORE_ARB_WAIT_EXTERNAL = 3, /* for something outside */
};
/* Around anything that blocks while bytes are held: dedicated contexts only. Any other call of the context ends it. */
SHMSTORE_API int shmstore_arb_wait_begin(struct shmstore *s, struct shmstore_arb_context *c,
					 enum shmstore_arb_wait kind, uint32_t target);
SHMSTORE_API int shmstore_arb_wait_end(struct shmstore *s, struct shmstore_arb_context *c);
SHMSTORE_API int shmstore_arb_spill_begin(struct shmstore *s, struct shmstore_arb_context *c);
SHMSTORE_API int shmstore_arb_spill_end(struct shmstore *s, struct shmstore_arb_context *c);

/* ---- event loops --------------------------------------------------------------------------------------------------- */

struct shmstore_arb_done {
	struct shmstore_arb_context *context;
	int outcome;                                 /* as the call would have returned */
	struct shmstore_arb_reservation reservation; /* of a reserve */
};
/* Readable when shmstore_arb_next() may have something: for poll(). Stays the same for the store's life, and is the library's. Or -errno */
SHMSTORE_API int shmstore_arb_fd(struct shmstore *s);
/* A call with SHMSTORE_ARB_ASYNC that has completed: 1; 0: none has. Never waits. Its context's next call may be made after it. */
SHMSTORE_API int shmstore_arb_next(struct shmstore *s, struct shmstore_arb_done *ret);
/* Completes what the context waits for with CANCELED; by any thread. */
SHMSTORE_API int shmstore_arb_cancel(struct shmstore *s, struct shmstore_arb_context *c);

/* ---- up-calls ------------------------------------------------------------------------------------------------------ */

/*
 * evict: make room of at least bytes in that private pool, by releasing, or by moving what was unpinned elsewhere and shmstore_arb_spilled(); returns
 * what really left the pool. reservation: the id of the one that was chosen first (0 = any). It is called by the thread that serves, with no lock held; again while it gives
 * something and more is wanted, and twice in vain at most. What was unpinned counts as reclaimable only while there is a channel. pressure: the level of the
 * partition has changed (struct shmstore_arb_pool_info); pool is SHMSTORE_ARB_PARTITION. Who waits in a private pool does not raise it.
 */
struct shmstore_arb_upcalls {
	uint64_t (*evict)(void *ctx, uint32_t pool, uint64_t bytes, uint32_t reservation);
	void (*pressure)(void *ctx, uint32_t pool, uint32_t level);
	void *ctx;
};
/* Opens the channel for up-calls. NULL: closes it. After the daemon's end: again. */
SHMSTORE_API int shmstore_arb_set_upcalls(struct shmstore *s, const struct shmstore_arb_upcalls *u);
/* Serves up-calls that have come, waits up to timeout_ms for the first (-1 = for ever, until set_upcalls(NULL)). Count; -ENOTSUP: there is no channel, or
 * it went with the daemon. One thread at a time. */
SHMSTORE_API int shmstore_arb_serve(struct shmstore *s, int timeout_ms);
SHMSTORE_API int shmstore_arb_serve_fd(struct shmstore *s); /* for poll() */
/* bytes of an unpinned reservation have left the pool (0: they will not). */
SHMSTORE_API int shmstore_arb_spilled(struct shmstore *s, const struct shmstore_arb_reservation *r, uint64_t bytes);

/* ---- inspection and tests ------------------------------------------------------------------------------------------ */

struct shmstore_arb_info {
	char state[16]; /* "RUNNING", "BLOCKED", …; "UNKNOWN": not bound */
	uint64_t since_ms, held, need;
};
SHMSTORE_API int shmstore_arb_state(struct shmstore *s, struct shmstore_arb_context *c, struct shmstore_arb_info *ret);

struct shmstore_arb_stats {
	uint64_t n_retries, n_splits, n_grants;
	uint64_t blocked_ns, lost_ns, blocked_or_lost_ns;
	uint64_t current, max, footprint, need;
};
/* Of a task in a pool (0 = all). reset: counts begin anew. */
SHMSTORE_API int shmstore_arb_stats(struct shmstore *s, uint32_t task, uint32_t pool, bool reset,
				    struct shmstore_arb_stats *ret);

enum shmstore_arb_injection {
	SHMSTORE_ARB_INJECT_RETRY = 1,
	SHMSTORE_ARB_INJECT_SPLIT,
	SHMSTORE_ARB_INJECT_ERROR,
	SHMSTORE_ARB_INJECT_TOOBIG,
	SHMSTORE_ARB_INJECT_TIMEDOUT,
};
/* The context's next count reserves after skip ones end so; pool 0 = of any pool; count 0 clears. For tests of a program's own roll back. */
SHMSTORE_API int shmstore_arb_inject(struct shmstore *s, struct shmstore_arb_context *c,
				     enum shmstore_arb_injection kind, uint32_t count, uint32_t skip, uint32_t pool);

#ifdef __cplusplus
}
#endif

#endif
