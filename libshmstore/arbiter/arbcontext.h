/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbcontext.h: what waits: contexts, and which of them is a thread's; and reservations, for the
 * library's own modules.
 *
 * One thread at a time uses a context. Fields changed by others are under shms_arb.lock, or atomic.
 */
#ifndef SHMS_ARBCONTEXT_H
#define SHMS_ARBCONTEXT_H

#include <shmstore/arbiter.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arbitrate.h"
#include "attach.h"
#include "opened.h"

/* As the daemon numbers them. */
#define SHMS_ARB_KIND_DEDICATED 1
#define SHMS_ARB_KIND_HELPER    2
#define SHMS_ARB_KIND_SERVICE   3

/* Why a context's reserves are the daemon's to see. */
#define SHMS_SLOW_OWED   (1u << 0) /* it was told RETRY or SPLIT, and has not said ready */
#define SHMS_SLOW_MARKED (1u << 1) /* a wait mark is set, which a reserve ends */
#define SHMS_SLOW_INJECT (1u << 2) /* outcomes are injected into its reserves */

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
	uint32_t n_injected;  /* reserves that may be hit still */
	uint32_t inject_pool; /* in this one; 0 = in any, UINT32_MAX = in several */
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

/* ---- reservations ---- */

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
 * The reservations that an attempt made and has not given back: a roll back gives back by them
 * the bytes that the attempt cannot name any more.
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
/* Leased bytes more of a reservation that was noted. */
void shms_attempt_lease(struct shmstore *s, const struct shmstore_arb_reservation *r,
			uint64_t bytes);
/* Leased bytes of r (UINT64_MAX-less: as many as there are) go, and with id its id. */
void shms_attempt_forget(struct shmstore *s, const struct shmstore_arb_reservation *r,
			 uint64_t leased, bool id);

#endif
