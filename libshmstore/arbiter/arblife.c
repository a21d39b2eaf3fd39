/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arblife.c: how a store's state of the arbiter (arbitrate.h) begins, forks and ends.
 *
 * The state is of its own, counted: a thread that ends after the store was closed, or in a forked
 * child, finds there that nothing is to be said to anybody. It does not hold the store's memory:
 * that would keep a partition open for as long as any thread lives that ever waited there.
 */
#include <stdlib.h>

#include "arbcontext.h"
#include "arbitrate.h"
#include "handle.h"

struct shms_arb *shms_arb_new(struct shmstore *s)
{
	struct shms_arb *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	atomic_init(&a->n_ref, 1);
	pthread_mutex_init(&a->lock, NULL);
	a->s = s;
	a->pools.last = SHMSTORE_ARB_PARTITION;
	shms_arb_events_init(&a->events);
	shms_arb_channel_init(&a->channel);
	return a;
}

void shms_arb_close(struct shmstore *s)
{
	struct shms_arb *a = s->arb;

	if (!a)
		return;
	/* Under the lock: a thread that ends just now is either done with the
	 * store or does not find it. */
	pthread_mutex_lock(&a->lock);
	a->s = NULL;
	pthread_mutex_unlock(&a->lock);
	shms_contexts_close(a);
	shms_arb_events_deinit(&a->events);
	shms_arb_channel_deinit(&a->channel);
	s->arb = shms_arb_unref(a);
}

void shms_arb_fork_child(struct shms_arb *a)
{
	pthread_mutex_unlock(&a->lock);
	a->s = NULL;
	shms_arb_events_fork_child(&a->events);
	shms_arb_channel_fork_child(&a->channel);
}
