/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbitrate.h: a store's part of the memory arbiter (shmstore/arbiter.h): its state, its ids, and
 * one message with its outcome.
 *
 * Ids are ours to choose; they are never used twice in a store's life, so that what an
 * earlier daemon knew by one is never taken for what this one does. A registration's
 * number (shms_attach.generation) says which daemon knows a task, a pool or a binding:
 * with another one they are gone.
 */
#ifndef SHMS_ARBITRATE_H
#define SHMS_ARBITRATE_H

#include <pthread.h>
#include <shmstore/arbiter.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attach.h"
#include "bell.h"
#include "opened.h"
#include "pagewords.h"
#include "request.h"

struct shms_attempt;

/*
 * Calls that complete later, for event loops (shmstore_arb_next()): the ones under way for a
 * context, and the queue of those that have ended.
 *
 * A call's memory (struct shms_later) is made with it, queued, and freed when told. The
 * connection's reader queues it; a descriptor tells the loop of a queued call or of bytes to read.
 */
struct shms_arb_events {
	pthread_mutex_t lock; /* of all below. Nothing is locked under it */
	struct shms_later *first;
	struct shms_bell bell; /* rung: the queue is not empty */
};

/* A call of a context, under way or ended. */
struct shms_later {
	struct shms_later *prev, *next;
	struct shms_arb_events *events;
	struct shmstore_arb_context *context;
	struct shmstore_arb_reservation reservation; /* where it succeeds */
	struct shms_request request;
	struct shms_reply reply;
};

/* The channel on which the daemon calls us: make room in a private pool;
 * the pressure has changed. */
struct shms_arb_channel {
	/* all below; not held while a call-back runs, or while anybody waits */
	pthread_mutex_t lock;
	struct shmstore_arb_upcalls upcalls;
	int fd;      /* -1 = none */
	int stop_fd; /* readable: who serves is to come back; made with the first channel, kept */
	/* a thread is in poll() or a call-back: it closes what was closed meanwhile */
	bool serving;
	bool closed;     /* fd is to be closed by who serves */
	uint64_t serial; /* last one that was sent */
};

/* Ids of tasks, or of pools. */
struct shms_arb_ids {
	uint32_t last;
	uint32_t stale;      /* up to here they are an earlier daemon's */
	uint64_t generation; /* of those after that */
};

struct shms_arb {
	_Atomic uint64_t n_ref; /* the store's, and one of each thread that has a context in it */
	/* s, contexts, attempts, tasks, pools. The connection's lock may be taken under it */
	pthread_mutex_t lock;
	struct shmstore *s; /* NULL: it is closed, or another process's */
	struct shmstore_arb_context *contexts;
	struct shms_attempt *attempts; /* under way, in all threads */
	struct shms_arb_ids tasks, pools;
	_Atomic uint32_t last_context, last_reservation;
	bool hook;                              /* SHMSTORE_OPEN_ARBITRATE */
	_Atomic uint32_t n_spending;            /* threads that spend a reservation */
	_Atomic uint64_t lease_ns[WIRE_LEASES]; /* CLOCK_MONOTONIC: no more is asked for before */
	struct shms_arb_events events;
	struct shms_arb_channel channel;
};

/* NULL: no memory. s need not be whole yet. */
struct shms_arb *shms_arb_new(struct shmstore *s);
struct shms_arb *shms_arb_unref(struct shms_arb *a);
/* The store goes; its connection has ended. Contexts that are no thread's are freed. */
void shms_arb_close(struct shmstore *s);
/* In a child of fork(), as that of attach.h; the lock was taken before the connection's. */
void shms_arb_fork_child(struct shms_arb *a);

/* n ids in a row, the first is returned. */
uint32_t shms_arb_next_ids(_Atomic uint32_t *last, uint32_t n);
/* A new id for this registration. */
uint32_t shms_arb_new_id(struct shms_arb *a, struct shms_arb_ids *ids, uint64_t generation);
/* Is it known to the daemon of this registration? */
bool shms_arb_knows(struct shms_arb *a, const struct shms_arb_ids *ids, uint32_t id,
		    uint64_t generation);
/* The registration's number; looks for a daemon where there is none. 0: none. */
uint64_t shms_arb_generation(struct shmstore *s);

struct shms_call shms_arb_make_call(const struct wire_arb *m, const char *tail,
				    uint64_t generation);
/* A reply's outcome, or -errno. r: 0, or -errno of the request. lost: returned for -ENOTCONN. */
int shms_arb_judge(int r, const struct shms_reply *reply, int lost);
/*
 * One message and its outcome, which is due at once: >= 0, or -errno. generation 0: any
 * registration; there -ENOTSUP says that there is no daemon. Elsewhere that is
 * SHMSTORE_ARB_DOWN. tail and ret may be NULL.
 */
int shms_arb_call(struct shmstore *s, const struct wire_arb *m, const char *tail,
		  uint64_t generation, struct shms_reply *ret);
/* One message whose outcome is not looked at. */
void shms_arb_post(struct shmstore *s, const struct wire_arb *m, uint64_t generation);

/* The calling thread's sentence for shmstore_arb_why(). Returns outcome. */
int shms_arb_say(int outcome, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* request.ended of each. */
void shms_arb_ended(struct shms_request *q);
/* The context goes: what it has under way, or in the queue, with it. */
void shms_arb_forget(struct shmstore *s, struct shms_arb_events *e, struct shms_later *later);

/*
 * Contexts wait (arbcontext.c); one of them is a thread's.
 *
 * One thread at a time uses a context. Fields changed by others are under shms_arb.lock, or atomic.
 */

/* As the daemon numbers them. */
#define SHMS_ARB_KIND_DEDICATED 1
#define SHMS_ARB_KIND_HELPER    2
#define SHMS_ARB_KIND_SERVICE   3

/* Why a context's reserves are the daemon's to see. */
#define SHMS_SLOW_OWED   (1u << 0) /* it was told RETRY or SPLIT, and has not said ready */
#define SHMS_SLOW_MARKED (1u << 1) /* a wait mark is set, which a reserve ends */
#define SHMS_SLOW_INJECT (1u << 2) /* outcomes were injected into its reserves */

struct shmstore_arb_context {
	struct shms_arb *arb;
	struct shmstore_arb_context *prev, *next; /* arb->contexts */
	uint32_t id;
	bool of_thread;
	bool helper;                 /* or service */
	_Atomic uint64_t generation; /* registration in which it was bound; 0 = it is not */
	uint32_t *tasks;             /* arb->lock: what it is bound to */
	size_t n_tasks;
	unsigned slow;        /* SHMS_SLOW_* */
	int owed;             /* RETRY, SPLIT: what it was told and has not answered */
	uint32_t last_serial; /* of its attempts */
	struct shms_attempt *attempt;
	struct shms_later *later; /* a call that will complete later */
};

/* A thread in a store. */
struct shms_arb_thread {
	struct shms_arb_thread *next;
	struct shms_arb *arb;              /* a reference */
	struct shmstore_arb_context *mine; /* made when it is needed */
	struct shmstore_arb_context *used; /* instead of it, now */
	struct shmstore_arb_reservation *spent;
};

/* The calling thread's, NULL where it has none. No lock, no call. */
struct shms_arb_thread *shms_arb_thread_find(const struct shmstore *s);
struct shms_arb_thread *shms_arb_thread(struct shmstore *s); /* makes one; NULL: no memory */
/* Its context now; NULL: it has none. */
static inline struct shmstore_arb_context *shms_arb_thread_context(const struct shms_arb_thread *t)
{
	return t ? t->used ? t->used : t->mine : NULL;
}

/* The context that is meant by a call: given, or the thread's. 0; -EINVAL (of
 * another store), -ENOMEM, -EPERM. */
int shms_context(struct shmstore *s, struct shmstore_arb_context *given,
		 struct shmstore_arb_context **ret);
/*
 * The same for a call that goes to the daemon: *ret_generation is the registration that it must
 * go to, 0 where the context is not bound. SHMSTORE_ARB_DOWN: that one has ended. -EBUSY: a call
 * of the context is under way.
 */
int shms_context_begin(struct shmstore *s, struct shmstore_arb_context *given,
		       struct shmstore_arb_context **ret, uint64_t *ret_generation);
/* Books the daemon's outcome for the context, and returns it. */
int shms_context_told(struct shmstore_arb_context *c, int outcome);
/* A task ended: nobody is bound to it any more. */
void shms_contexts_task_ended(struct shms_arb *a, uint32_t task);
/* The store has gone (arb->s is NULL). */
void shms_contexts_close(struct shms_arb *a);

/* Is it bound, to a daemon that lives? */
static inline bool shms_context_bound(const struct shmstore *s,
				      const struct shmstore_arb_context *c)
{
	uint64_t generation = atomic_load_explicit(&c->generation, memory_order_relaxed);

	return generation && generation == shms_attach_generation(shms_attach_of(s));
}

/* ---- reservations, for the library's own modules (reservation.c) ---- */

#define SHMS_ARB_FLAGS (SHMSTORE_ARB_NONBLOCK | SHMSTORE_ARB_SPILL | SHMSTORE_ARB_ASYNC)

struct shms_arb_ask {
	uint32_t pool;
	uint64_t bytes;
	struct shmstore_arb_how how; /* context set */
	bool no_lease;               /* the daemon is to see this one */
	bool no_attempt;             /* it ends within the call that makes it */
};

/* As shmstore_arb_reserve(). */
int shms_arb_reserve(struct shmstore *s, const struct shms_arb_ask *ask,
		     struct shmstore_arb_reservation *ret);
/* bytes of r, no more than it has, have become memory of the partition. */
void shms_arb_settle(struct shmstore *s, struct shmstore_arb_reservation *r, uint64_t bytes);
/* Gives leased bytes back. */
void shms_lease_give(struct shmstore *s, uint32_t pool, uint64_t bytes);

/*
 * arbattempt.c: the reservations that an attempt made and has not given back: a roll back gives
 * back by them the bytes that the attempt cannot name any more.
 *
 * An attempt is of one context and runs on one thread. Attempts of a context are nested; each
 * has a number, larger than those of all before. A reservation carries it; it is of the
 * innermost attempt under way with a number no larger: so what an inner attempt leaves is the
 * outer one's, and what an earlier attempt left is nobody's. Reservations may be released by
 * other threads, though seldom.
 */

struct shms_attempt {
	struct shms_attempt *prev, *next; /* arb->attempts */
	struct shms_attempt *outer;       /* of the same context */
	struct shmstore_arb_context *context;
	uint32_t serial;
	_Atomic uint64_t leased[WIRE_LEASES]; /* bytes, by pool */
	uint32_t *ids;                        /* arb->lock: of the daemon's */
	size_t n_ids, room;
};

/* Room for n more ids, before they are asked for. 0, -ENOMEM. */
int shms_attempt_room(struct shmstore_arb_context *c, size_t n);
/* Reserved: books r (ids where it has one, else its lease), and sets whose it is. */
void shms_attempt_note(struct shmstore_arb_context *c, struct shmstore_arb_reservation *r);
/* Of r, which was noted, so many leased bytes come, or go (less than 0); with id its id goes. */
void shms_attempt_change(struct shmstore *s, const struct shmstore_arb_reservation *r,
			 uint64_t leased, bool id);

#endif
