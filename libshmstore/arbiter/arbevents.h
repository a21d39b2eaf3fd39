/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbevents.h: calls that complete later, for event loops: what is under way for a context, and the queue of what has ended.
 *
 * A call's memory (struct shms_later) is made with it, queued, and freed when told. The
 * connection's reader queues it; a descriptor tells the loop of a queued call or of bytes to read.
 */
#ifndef SHMS_ARBEVENTS_H
#define SHMS_ARBEVENTS_H

#include <pthread.h>
#include <shmstore/arbiter.h>

#include "bell.h"
#include "request.h"

struct shms_arb;

struct shms_arb_events {
	pthread_mutex_t lock; /* of all below. Nothing is locked under it */
	struct shms_later *first, **end;
	struct shms_bell bell; /* rung: the queue is not empty */
};

/* A call of a context, under way or ended. */
struct shms_later {
	struct shms_later *next;
	struct shms_arb_events *events;
	struct shmstore_arb_context *context;
	struct shmstore_arb_reservation reservation; /* where it succeeds */
	struct shms_request request;
	struct shms_reply reply;
};

void shms_arb_events_init(struct shms_arb_events *e);
void shms_arb_events_deinit(struct shms_arb_events *e);
void shms_arb_events_fork_child(struct shms_arb_events *e);
/* request.ended of each. */
void shms_arb_ended(struct shms_request *q);
/* The context goes: what it has under way, or in the queue, with it. */
void shms_arb_forget(struct shmstore *s, struct shms_arb_events *e, struct shms_later *later);

#endif
