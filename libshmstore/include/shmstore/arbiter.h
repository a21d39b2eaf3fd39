/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbiter.h: reserve memory before it is taken; wait, roll back or split the
 * work where there is not enough.
 *
 * With shmstored and its arbiter, the tasks of all processes that use a partition are given its
 * bytes in turn. A request that does not fit waits. Where waiting cannot help, because all wait
 * for each other, the task of the lowest priority is told RETRY: it gives back what this attempt
 * took, and begins again when all of it fits. A task that is too large even alone is told SPLIT.
 * So a job that fits by pieces ends, slower, instead of failing with -ENOSPC. docs/arbiter.md has
 * the rules, the states and examples.
 *
 *   store     any that is open and not read-only. With SHMSTORE_OPEN_ARBITRATE put,
 *             create and promotion (a get's, too) reserve by themselves for bound
 *             contexts, and return outcomes, > 0, where they are not given the bytes. An
 *             adoption is a link: it takes nothing
 *   task      a scope of work: begins, holds bytes, ends. It carries the
 *             priority: larger is served first
 *   context   what waits: by default the calling thread; or one of the program's own (a
 *             coroutine, a scheduler's key)
 *   pool      SHMSTORE_ARB_PARTITION: the store's partition. Or private
 *             ones: a budget of this process
 *
 * These hold for every function that takes a store, beside what it says itself:
 *
 *   Return   0; or an outcome, > 0 (enum shmstore_arb_outcome); or -errno:
 *              -EINVAL    s is NULL or closed, a flag is unknown, the context is of another store,
 *                         or the daemon does not take the request (no such task, pool or context):
 *                         shmstore_error_detail() says which
 *              -EPERM     the store was opened to be read only, or by the parent before a fork
 *              -ENOTSUP   no daemon, or its arbiter is off. Nothing is reserved; calls of the store
 *                         are as without arbitration: -ENOSPC when the partition is full
 *              -EBUSY     the context has a call with SHMSTORE_ARB_ASYNC under
 *                         way: shmstore_arb_next() ends it
 *              -ENOMEM    out of memory
 *              SHMSTORE_ARB_DOWN   the daemon went away. All tasks, bindings and private pools went
 *                         with it: calls for those return DOWN until they are begun, bound and made
 *                         anew. All waits end so. Reservations may still be released
 *   Threads  many threads may call at once, but for one context: its calls never overlap
 *            (shmstore_arb_cancel() and shmstore_arb_state() excepted). A NULL context is the
 *            calling thread's own one, which ends with the thread
 *   Fork     a child has no contexts: -EPERM. Freeing its copies of contexts
 *            touches nothing of the parent's
 *   Never    starts a thread. Since 0.1, all of it
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
	/* Only with SHMSTORE_ARB_ASYNC: shmstore_arb_next() will give the outcome. */
	SHMSTORE_ARB_PENDING = 1,
	/* Release what this attempt reserved, call shmstore_arb_ready(), begin the attempt
	 * again. */
	SHMSTORE_ARB_RETRY = 2,
	/* The same, with less work at a time. */
	SHMSTORE_ARB_SPLIT = 3,
	/* The bytes cannot be had; shmstore_arb_why() says which tasks hold them. */
	SHMSTORE_ARB_NOMEM = 4,
	/* More than the pool's capacity. */
	SHMSTORE_ARB_TOOBIG = 5,
	/* With SHMSTORE_ARB_NONBLOCK: not now. */
	SHMSTORE_ARB_AGAIN = 6,
	/* The deadline, or the longest wait that the daemon allows, passed. */
	SHMSTORE_ARB_TIMEDOUT = 7,
	/* shmstore_arb_cancel(), or an operator, ended the wait. */
	SHMSTORE_ARB_CANCELED = 8,
	/* The context was unbound, or its task ended, during the wait. */
	SHMSTORE_ARB_REMOVED = 9,
	/* The daemon went away, or shuts down. */
	SHMSTORE_ARB_DOWN = 10,
	/* Injected by a test. */
	SHMSTORE_ARB_ERROR = 11,
};
/* The outcome's name, "RETRY". Return: static text, never NULL; "UNKNOWN" for a number that is
 * none. Threads, Fork: any. */
SHMSTORE_API const char *shmstore_arb_outcome_name(int outcome);
/*
 * Why the calling thread's last outcome was not OK: a sentence of the daemon's.
 * Ownership: the thread's, valid until its next call of this header. Return: never
 * NULL; "" where there is none.
 */
SHMSTORE_API const char *shmstore_arb_why(void);

#define SHMSTORE_ARB_PARTITION 1u /* pool: the store's partition */

#define SHMSTORE_ARB_NONBLOCK (1u << 0) /* AGAIN instead of waiting; no other effect */
/* on the spill path: never waits, may use the pool's spill reserve */
#define SHMSTORE_ARB_SPILL    (1u << 1)
/* PENDING instead of waiting in the call; needs a context of one's own */
#define SHMSTORE_ARB_ASYNC    (1u << 2)

/* Is there an arbiter behind this store now? One round trip. Return: 0; -ENOTSUP, and as above. */
SHMSTORE_API int shmstore_arb_available(struct shmstore *s);

/* ---- pools ----------------------------------------------------------------------------------- */

struct shmstore_arb_pool_info {
	uint64_t capacity, used, reclaimable, spilled, max_used;
	uint32_t n_waiting;
	uint32_t level; /* 0 nobody waits, 1 somebody does, 2 somebody was rolled back lately */
};
/*
 * Makes a private pool: a budget of this process, with the partition's rules. It goes
 * with the store's connection.
 *   name            1 to SHMSTORE_LABEL_MAX bytes, shown to operators
 *   capacity        bytes
 *   spill_reserve   bytes of it that only SHMSTORE_ARB_SPILL may use; rounded up to KiB
 *   ret_pool        the pool's id, > SHMSTORE_ARB_PARTITION
 * Return: as above; -EINVAL also: name, a spill reserve above the capacity, ret_pool NULL.
 */
SHMSTORE_API int shmstore_arb_pool_create(struct shmstore *s, const char *name, uint64_t capacity,
					  uint64_t spill_reserve, uint32_t *ret_pool);
/*
 * Gives a private pool another capacity. Reservations are kept; requests larger than the new
 * capacity end with TOOBIG. Return: as above; -EINVAL also: not a private pool.
 */
SHMSTORE_API int shmstore_arb_pool_resize(struct shmstore *s, uint32_t pool, uint64_t capacity);
/* Takes a private pool away. Return: as above; -EINVAL also: not a private pool, or
 * something is reserved in it. */
SHMSTORE_API int shmstore_arb_pool_remove(struct shmstore *s, uint32_t pool);
/*
 * Describes a pool, as the daemon sees it. One round trip.
 *   pool   SHMSTORE_ARB_PARTITION, or a private one of this store
 * Return: as above; -EINVAL also: no such pool, ret NULL.
 */
SHMSTORE_API int shmstore_arb_pool_info_sized(struct shmstore *s, uint32_t pool,
					      struct shmstore_arb_pool_info *ret SHMSTORE_RET_SIZE);
#define shmstore_arb_pool_info(...) SHMSTORE_FILLS(arb_pool_info, arb_pool_info, __VA_ARGS__)

/* ---- tasks and contexts ---------------------------------------------------------------------- */

#define SHMSTORE_ARB_ARRIVAL INT64_MIN /* priority: earlier is higher, below every explicit one */
struct shmstore_arb_task_options {
	size_t size; /* sizeof: by SHMSTORE_ARB_TASK_OPTIONS_INIT */
	int64_t priority;
	const char *label; /* at most SHMSTORE_LABEL_MAX bytes, shown to operators; NULL = none */
	uint32_t inherit;  /* a task whose priority this one takes over; 0 = none */
};
#define SHMSTORE_ARB_TASK_OPTIONS_INIT                                                  \
	{                                                                               \
		sizeof(struct shmstore_arb_task_options), SHMSTORE_ARB_ARRIVAL, NULL, 0 \
	}
/*
 * Begins a task.
 *   o          NULL: SHMSTORE_ARB_TASK_OPTIONS_INIT
 *   ret_task   the task's id
 * Return: as above; -EINVAL also: o->size, a label that is too long, ret_task NULL.
 */
SHMSTORE_API int shmstore_arb_task_begin(struct shmstore *s,
					 const struct shmstore_arb_task_options *o,
					 uint32_t *ret_task);
/*
 * Ends a task: unbinds its contexts (a wait of theirs ends with REMOVED) and releases its
 * reservations that have not become objects. Return: as above, but never DOWN: a task ends with the
 * daemon that knew it, and that is 0.
 */
SHMSTORE_API int shmstore_arb_task_end(struct shmstore *s, uint32_t task);

/*
 * Makes a context that is no thread.
 * Ownership: the caller's, until shmstore_arb_context_free(); the store's
 * close frees it at the latest.
 * Return: 0; -EINVAL (ret NULL), -EPERM, -ENOMEM. Asks no daemon.
 */
SHMSTORE_API int shmstore_arb_context_new(struct shmstore *s, struct shmstore_arb_context **ret);
/*
 * Unbinds and frees a context that shmstore_arb_context_new() made. A call of its own with
 * SHMSTORE_ARB_ASYNC is forgotten; no other call may be under way, and no other thread may use it
 * (shmstore_arb_use()). c may be NULL; a thread's own context is left alone. Return: NULL.
 */
SHMSTORE_API struct shmstore_arb_context *shmstore_arb_context_free(struct shmstore_arb_context *c);
/* The context's id, as operators see it (shmstore-admin arb threads). c is not
 * NULL. Costs no system call. */
SHMSTORE_API uint32_t shmstore_arb_context_id(const struct shmstore_arb_context *c);
/*
 * Makes c the calling thread's context, for programs whose contexts go from thread to thread: from
 * here on the thread's calls with a NULL context, and what its puts and creates reserve, are c's.
 * NULL: the thread's own context again. Freeing c ends this for the thread that frees; other
 * threads must have ended it before.
 * Return: 0; -EINVAL (c is of another store, or a thread's own), -EPERM, -ENOMEM. Asks no daemon.
 */
SHMSTORE_API int shmstore_arb_use(struct shmstore *s, struct shmstore_arb_context *c);

/*
 * Dedicates a context to one task: the task waits while the context waits. A context bound to
 * another task moves. Return: as above; -EINVAL also: task is 0, or the context is a helper; DOWN
 * also: the task was begun with an earlier daemon.
 */
SHMSTORE_API int shmstore_arb_bind(struct shmstore *s, struct shmstore_arb_context *c,
				   uint32_t task);
/*
 * Makes a context a helper of some tasks, with the best priority of theirs.
 *   tasks, n   1 to 64 tasks, added to those that it helps already
 *   service    it works for many and is served before all tasks
 * Return: as above; -EINVAL also: n, a task that is 0, or the context is dedicated; DOWN also: as
 * shmstore_arb_bind().
 */
SHMSTORE_API int shmstore_arb_bind_helper(struct shmstore *s, struct shmstore_arb_context *c,
					  const uint32_t *tasks, size_t n, bool service);
/*
 * Unbinds a context from n tasks, at most 64; skips unbound ones. n 0: from all, tasks may be NULL.
 * Return: 0, also where the daemon is gone; -EINVAL (tasks, n), -EPERM, -ENOMEM.
 */
SHMSTORE_API int shmstore_arb_unbind(struct shmstore *s, struct shmstore_arb_context *c,
				     const uint32_t *tasks, size_t n);

/* ---- reservations ---------------------------------------------------------------------------- */

/* Plain data: release it once, wherever it was copied to, by any thread. */
struct shmstore_arb_reservation {
	uint64_t bytes;
	/* of them, served from a lease: the daemon knows no single ones of these */
	uint64_t leased;
	uint32_t id; /* of the rest, as operators see it; 0 = there is none */
	uint32_t pool;
	uint32_t context; /* the library's: which attempt of which context it belongs to */
	uint32_t attempt;
};

/* How a call may wait. NULL in its place: it waits, as long as the daemon lets it. */
struct shmstore_arb_how {
	struct shmstore_arb_context *context; /* NULL: the calling thread's */
	unsigned flags;                       /* SHMSTORE_ARB_* */
	uint64_t timeout_ms;                  /* 0 = the daemon's longest */
};

/*
 * Reserves bytes of a pool for the task of a bound context. Small ones are served from the store's
 * lease, without a message to the daemon.
 *   pool   SHMSTORE_ARB_PARTITION, or a private one of this store
 *   how    may be NULL. SHMSTORE_ARB_ASYNC needs a context of shmstore_arb_context_new()
 *   ret    written on 0 only. Ownership: plain data; ends by release, commit, or its task's end
 * Return: as above, and any outcome; -EINVAL also: pool is 0 or none, ret NULL,
 * ASYNC with a thread's own context. A context that is bound to nothing never waits:
 * NOMEM where the bytes do not fit.
 */
SHMSTORE_API int shmstore_arb_reserve(struct shmstore *s, uint32_t pool, uint64_t bytes,
				      const struct shmstore_arb_how *how,
				      struct shmstore_arb_reservation *ret);
/*
 * Reserves of several pools, all or nothing.
 *   r, n   1 to 16; pool and bytes of each are read, the rest is written. With ASYNC r[] is
 *          complete when shmstore_arb_next() says OK
 * Return: as shmstore_arb_reserve(); r[].id is 0 where it was not given.
 */
SHMSTORE_API int shmstore_arb_reserve_many(struct shmstore *s, struct shmstore_arb_reservation *r,
					   size_t n, const struct shmstore_arb_how *how);
/*
 * Changes a reservation's size. Less is given back at once, whatever how says; more is as a reserve
 * of the difference, and r is as it was where that is not given.
 * Return: as shmstore_arb_reserve(); -EINVAL also: r is none, or ASYNC on one
 * that was served from a lease.
 */
SHMSTORE_API int shmstore_arb_resize(struct shmstore *s, struct shmstore_arb_reservation *r,
				     uint64_t bytes, const struct shmstore_arb_how *how);
/*
 * Gives a reservation back; r->bytes becomes 0. Waits for nothing, and is right also when the
 * daemon is gone and where r->bytes is 0 already. Return: 0; -EINVAL (r is NULL or none), -EPERM.
 */
SHMSTORE_API int shmstore_arb_release(struct shmstore *s, struct shmstore_arb_reservation *r);
/*
 * Says that what was reserved in the partition has become memory there, by other means than this
 * store (shmstore_arb_spend() is for the store's own calls): from here on the kernel counts it.
 *   bytes   that it became; what was reserved beyond is given back. r->bytes becomes 0
 * Return: as shmstore_arb_release(); -EINVAL also: of a private pool.
 */
SHMSTORE_API int shmstore_arb_commit(struct shmstore *s, struct shmstore_arb_reservation *r,
				     uint64_t bytes);
/*
 * Makes the thread's puts and creates in this store, opened with ARBITRATE or not, take memory of
 * r: r->bytes falls by the bytes written. Bytes beyond r's are reserved as if there were no r.
 *   r   of the partition's pool; NULL ends it. Ownership: the caller's; it must
 *       live, in its place, until then
 * Return: 0; -EINVAL (of a private pool), -EPERM, -ENOMEM. Asks no daemon.
 */
SHMSTORE_API int shmstore_arb_spend(struct shmstore *s, struct shmstore_arb_reservation *r);
/*
 * Lets the pool's evict call-back (shmstore_arb_set_upcalls()) take the reserved memory when others
 * need room. A reservation that was served from a lease is declared to the daemon first.
 * Return: as above; AGAIN: that cannot be done now, and it stays pinned; -EINVAL also: r is empty.
 */
SHMSTORE_API int shmstore_arb_unpin(struct shmstore *s, struct shmstore_arb_reservation *r);
/* Forbids it again. Where the bytes were taken, waits for them as a reserve does. Return: as
 * shmstore_arb_unpin(), and any outcome. */
SHMSTORE_API int shmstore_arb_pin(struct shmstore *s, const struct shmstore_arb_reservation *r,
				  const struct shmstore_arb_how *how);

/* ---- retry ----------------------------------------------------------------------------------- */

/* Brackets one attempt of a context by hand, for programs that shmstore_arb_with_retry() does not
 * fit. A context that is bound to nothing needs no bracket: 0. Waits for nothing. Return: 0, DOWN,
 * -EINVAL, -EPERM, -EBUSY, -ENOMEM. */
SHMSTORE_API int shmstore_arb_retry_begin(struct shmstore *s, struct shmstore_arb_context *c);
/* Ends it. ok: the attempt succeeded, which is progress for all. Return: as
 * shmstore_arb_retry_begin(). */
SHMSTORE_API int shmstore_arb_retry_end(struct shmstore *s, struct shmstore_arb_context *c,
					bool ok);
/*
 * After RETRY or SPLIT, when all that the attempt reserved is given back:
 * waits until it may begin again.
 * Return: 0: begin; SPLIT: with less work; or another outcome, and as above.
 */
SHMSTORE_API int shmstore_arb_ready(struct shmstore *s, const struct shmstore_arb_how *how);

/*
 * Runs attempt(item) for each of n items in turn, and deals with RETRY and SPLIT. The
 * items are the caller's, opaque.
 *   attempt   must be repeatable from its item. It reserves, computes, and returns 0, an outcome of
 *             a call of this header or of a store's, or -errno (behind which a RETRY or SPLIT that
 *             a call of this context returned is found all the same). Where it does not return 0,
 *             what it reserved with its context and neither committed nor released is released
 *             before shmstore_arb_ready() is called
 *   split     puts up to max smaller items in place of one, in order, and returns their number (1:
 *             the same with less at a time), 0 (cannot be split) or -errno. Above 0 it owns the
 *             item: no done for it. Its reserves are not retried. NULL: no item can be split
 *   done      an item has ended, with 0 or what ended it. Called for the items that were begun, and
 *             for all that came of a split. NULL: nobody wants to know
 *   save, restore   save(item) before its first attempt; restore(item) after one that was told
 *             RETRY or SPLIT, before anything else is called. NULL: either, or both
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
#define SHMSTORE_ARB_SPLIT_MAX 64u /* items that a split may return: its max */
/*
 * For splits that lower a target size, "batches of so many bytes": the next smaller one. Pure.
 *   data   bytes that there are, 0 = not known: half of it where that is no more than half
 *          of target, else half of target
 * Return: bytes; 0 where they would be below min.
 */
SHMSTORE_API uint64_t shmstore_arb_smaller(uint64_t target, uint64_t min, uint64_t data);
/*
 * The runner of struct shmstore_arb_work. While it runs, the calling thread's calls without a
 * context are work->how.context's (shmstore_arb_use()). Calls may be nested: each deals with
 * what its own attempt is told.
 * Return: 0; the first outcome or -errno that it could not deal with (SPLIT: of an item that
 * cannot be split; shmstore_arb_why() names it); -EINVAL also: work is NULL, work->size,
 * attempt NULL, items NULL, ASYNC.
 */
SHMSTORE_API int shmstore_arb_with_retry(struct shmstore *s, void *const *items, size_t n,
					 struct shmstore_arb_work *work);

/* ---- marks ----------------------------------------------------------------------------------- */

enum shmstore_arb_wait {
	SHMSTORE_ARB_WAIT_POOL = 1,     /* for a helper of its own task */
	SHMSTORE_ARB_WAIT_TASK = 2,     /* for another task: target */
	SHMSTORE_ARB_WAIT_EXTERNAL = 3, /* for something outside */
};
/*
 * Says that a dedicated context that holds bytes blocks on something else than the arbiter:
 * otherwise the arbiter cannot know that its task is stuck. Any other call of the context ends
 * the mark. Waits for nothing.
 *   target   a task with SHMSTORE_ARB_WAIT_TASK, else 0
 * Return: 0, DOWN; -EINVAL (kind or target, or the context is a helper), -EPERM, -EBUSY, -ENOMEM.
 */
SHMSTORE_API int shmstore_arb_wait_begin(struct shmstore *s, struct shmstore_arb_context *c,
					 enum shmstore_arb_wait kind, uint32_t target);
/* Ends the mark. Return: as shmstore_arb_wait_begin(). */
SHMSTORE_API int shmstore_arb_wait_end(struct shmstore *s, struct shmstore_arb_context *c);
/* Says that the context's reserves serve to make room, until shmstore_arb_spill_end(): they are no
 * part of its task's footprint (shmstore_arb_stats()). Waits for nothing. Return: 0, DOWN;
 * -EINVAL, -EPERM, -EBUSY, -ENOMEM. */
SHMSTORE_API int shmstore_arb_spill_begin(struct shmstore *s, struct shmstore_arb_context *c);
/* Ends it. Return: as shmstore_arb_spill_begin(). */
SHMSTORE_API int shmstore_arb_spill_end(struct shmstore *s, struct shmstore_arb_context *c);

/* ---- event loops ----------------------------------------------------------------------------- */

struct shmstore_arb_done {
	struct shmstore_arb_context *context;
	int outcome;                                 /* as the call would have returned */
	struct shmstore_arb_reservation reservation; /* of a reserve */
};
/*
 * A descriptor for poll(): readable when shmstore_arb_next() may have something.
 * Ownership: the library's, the same for the store's life.
 * Return: the descriptor; -EINVAL, -EPERM, -EMFILE, -ENOMEM, and what making it failed with.
 */
SHMSTORE_API int shmstore_arb_fd(struct shmstore *s);
/*
 * The next call with SHMSTORE_ARB_ASYNC that has completed. Never waits. After it, its
 * context's next call may be made.
 *   ret   the reservation is zero unless the outcome is OK. Ownership: plain data
 * Return: 1; 0: none has completed; -EINVAL (ret NULL), -EPERM. One thread gets each.
 */
SHMSTORE_API int shmstore_arb_next_sized(struct shmstore *s,
					 struct shmstore_arb_done *ret SHMSTORE_RET_SIZE);
#define shmstore_arb_next(...) SHMSTORE_FILLS(arb_next, arb_done, __VA_ARGS__)
/*
 * Completes what a context waits for with CANCELED. Any thread may call it.
 *   c   NULL: the calling thread's own, which waits for nothing then
 * Return: 0, also where it waits for nothing; and as above.
 */
SHMSTORE_API int shmstore_arb_cancel(struct shmstore *s, struct shmstore_arb_context *c);

/* ---- up-calls -------------------------------------------------------------------------------- */

/*
 * The arbiter's requests to a program. The thread that serves (shmstore_arb_serve()) calls both,
 * with no lock held; either may be NULL.
 *   evict      frees at least bytes of that private pool: by releasing, or by moving unpinned
 *              memory elsewhere, and shmstore_arb_spilled(). Returns the bytes that left the pool.
 *              Called again while it gives and more is wanted; at most twice in vain. reservation:
 *              the id chosen first (0 = any). Only a channel makes unpinned memory reclaimable
 *   pressure   the level of the partition has changed (struct shmstore_arb_pool_info); pool is
 *              SHMSTORE_ARB_PARTITION. Waits in a private pool do not raise it
 */
struct shmstore_arb_upcalls {
	uint64_t (*evict)(void *ctx, uint32_t pool, uint64_t bytes, uint32_t reservation);
	void (*pressure)(void *ctx, uint32_t pool, uint32_t level);
	void *ctx;
};
/*
 * Opens the channel for up-calls, a connection of its own; in place of one that is open.
 * After the daemon's end: again.
 *   u   copied; NULL closes the channel, and a shmstore_arb_serve() that waits returns
 * Return: 0; -ENOTSUP, -EBUSY (another thread serves the old channel still: again when it has
 * returned), -EINVAL, -EPERM, -EMFILE, -ENOMEM, -ETIMEDOUT (the daemon does not answer).
 */
SHMSTORE_API int shmstore_arb_set_upcalls(struct shmstore *s, const struct shmstore_arb_upcalls *u);
/*
 * Serves the up-calls that have come, in the calling thread.
 *   timeout_ms   how long the first one is waited for; -1 = for ever, until
 *                shmstore_arb_set_upcalls(s, NULL)
 * Return: how many were served; -ENOTSUP (there is no channel, or it went with the daemon), -EBUSY
 * (another thread serves), -EINVAL, -EPERM.
 */
SHMSTORE_API int shmstore_arb_serve(struct shmstore *s, int timeout_ms);
/* For poll(): readable when there is something to serve. Ownership: the
 * library's, until the channel closes.
 * Return: the descriptor; -ENOTSUP (no channel), -EINVAL, -EPERM. */
SHMSTORE_API int shmstore_arb_serve_fd(struct shmstore *s);
/*
 * Says how many bytes of an unpinned reservation have left the pool; 0: they
 * will not. Waits for nothing.
 * Return: 0; -EINVAL (r is none, empty, or served from a lease), -EPERM.
 */
SHMSTORE_API int shmstore_arb_spilled(struct shmstore *s, const struct shmstore_arb_reservation *r,
				      uint64_t bytes);

/* ---- inspection and tests -------------------------------------------------------------------- */

struct shmstore_arb_info {
	char state[16]; /* "RUNNING", "BLOCKED", …; "UNKNOWN": not bound */
	uint64_t since_ms, held, need;
};
/* A context's state, as the daemon has it; any thread may ask, also while the
 * context waits. One round trip.
 * Return: as above; -EINVAL also: ret NULL. */
SHMSTORE_API int shmstore_arb_state_sized(struct shmstore *s, struct shmstore_arb_context *c,
					  struct shmstore_arb_info *ret SHMSTORE_RET_SIZE);
#define shmstore_arb_state(...) SHMSTORE_FILLS(arb_state, arb_info, __VA_ARGS__)

struct shmstore_arb_stats {
	uint64_t n_retries, n_splits, n_grants;
	uint64_t blocked_ns, lost_ns, blocked_or_lost_ns;
	uint64_t current, max, footprint, need;
};
/*
 * Tells a task's statistics and its bytes in a pool. One round trip.
 *   task    0: the one that the calling thread works for
 *   pool    0: in all pools together
 *   reset   the counts begin anew
 * Return: as above; -EINVAL also: no such task or pool, ret NULL; task 0 where the
 * thread works for none, or several.
 */
SHMSTORE_API int shmstore_arb_stats_sized(struct shmstore *s, uint32_t task, uint32_t pool,
					  bool reset,
					  struct shmstore_arb_stats *ret SHMSTORE_RET_SIZE);
#define shmstore_arb_stats(...) SHMSTORE_FILLS(arb_stats, arb_stats, __VA_ARGS__)

enum shmstore_arb_injection {
	SHMSTORE_ARB_INJECT_RETRY = 1,
	SHMSTORE_ARB_INJECT_SPLIT,
	SHMSTORE_ARB_INJECT_ERROR,
	SHMSTORE_ARB_INJECT_TOOBIG,
	SHMSTORE_ARB_INJECT_TIMEDOUT,
};
/*
 * Makes a bound context's next count reserves, after skip ones, end with an outcome: for tests of a
 * program's own roll back. Reserves that never wait are not hit.
 *   count   0 clears what was injected
 *   pool    0: of any pool
 * Return: as above; -EINVAL also: kind, or the context is bound to no task.
 */
SHMSTORE_API int shmstore_arb_inject(struct shmstore *s, struct shmstore_arb_context *c,
				     enum shmstore_arb_injection kind, uint32_t count,
				     uint32_t skip, uint32_t pool);

#ifdef __cplusplus
}
#endif

#endif
