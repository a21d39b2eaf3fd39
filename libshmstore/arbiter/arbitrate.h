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
#include <stdbool.h>
#include <stdint.h>

#include "bell.h"
#include "pagewords.h"
#include "request.h"

struct shmstore;
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

/* The channel on which the daemon calls us (arbserve.c): make room in a private pool;
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
void shms_arb_ref(struct shms_arb *a);
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

void shms_arb_channel_init(struct shms_arb_channel *c);
void shms_arb_channel_deinit(struct shms_arb_channel *c);
void shms_arb_channel_fork_child(struct shms_arb_channel *c);

#endif
