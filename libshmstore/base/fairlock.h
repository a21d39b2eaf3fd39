/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fairlock.h: a lock that many share or one has, within a process, in which nobody waits for ever.
 *
 * Without anybody who waits it is a pthread_rwlock_t that prefers readers, and as fast.
 * Somebody who waits to have it alone lets some thousand others pass, which is cheaper than
 * to put all of them to sleep each time; then those who come queue up, first come first
 * served, until nobody waits any more. So a wait ends after a bounded number of others'
 * turns, whoever they are and however many.
 *
 * Not recursive: its holder must not ask for it again, shared neither. No cancellation point. A
 * holder starts no thread: the only thread of a process holds it without taking it.
 */
#ifndef SHMS_FAIRLOCK_H
#define SHMS_FAIRLOCK_H

#include "lightlock.h"

struct shms_fairlock {
	pthread_rwlock_t lock;
	/* it is held by the process's only thread, which keeps nobody out and takes nothing */
	bool alone;
	_Atomic uint32_t n_waiting; /* to have it alone */
	_Atomic uint32_t passes;    /* of others, while somebody waited */
	_Atomic uint32_t limit;     /* from this number of passes on the others queue up */
	_Atomic uint32_t last, now; /* the queue: numbers given out, and the one whose turn it is */
};

void shms_fairlock_init(struct shms_fairlock *l);

/* Of the next functions. */
void shms_fairlock_share_among(struct shms_fairlock *l);
void shms_fairlock_take_among(struct shms_fairlock *l);
void shms_fairlock_release_among(struct shms_fairlock *l);

static inline void shms_fairlock_share(struct shms_fairlock *l)
{
	if (SHMS_ONE_THREAD)
		l->alone = true;
	else
		shms_fairlock_share_among(l);
}

static inline void shms_fairlock_take(struct shms_fairlock *l)
{
	if (SHMS_ONE_THREAD)
		l->alone = true;
	else
		shms_fairlock_take_among(l);
}

/* After either, as it was taken. */
static inline void shms_fairlock_release(struct shms_fairlock *l)
{
	if (l->alone)
		l->alone = false;
	else
		shms_fairlock_release_among(l);
}

#endif
