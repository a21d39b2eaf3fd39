/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbcontext.h: what waits: contexts, and which of them is a thread's.
 *
 * One thread at a time uses a context. Fields changed by others are under shms_arb.lock, or atomic.
 */
#ifndef SHMS_ARBCONTEXT_H
#define SHMS_ARBCONTEXT_H

#include <shmstore/arbiter.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "arbitrate.h"
#include "handle.h"

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

	return generation &&
	       generation == atomic_load_explicit(&s->attach.generation, memory_order_relaxed);
}

#endif
