/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turns.h: first come, first served, in a process, for work of milliseconds. A waiter may give up.
 *
 * Threads: any. Not recursive. In a forked child it is made anew. No cancellation point.
 */
#ifndef SHMS_TURNS_H
#define SHMS_TURNS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct shms_turn;

struct shms_turns {
	pthread_mutex_t lock;            /* of what follows */
	struct shms_turn *_Atomic first; /* of those who wait */
	_Atomic bool taken;              /* somebody has the turn */
};

void shms_turns_init(struct shms_turns *t);
void shms_turns_deinit(struct shms_turns *t);
/* Waits for the turn for so long at most; meanwhile tick is called once in a millisecond (NULL: it
 * is not). False: time is over, or tick said so. */
bool shms_turns_take(struct shms_turns *t, uint64_t ns, int (*tick)(void *arg), void *arg);
/* The next one has it. */
void shms_turns_end(struct shms_turns *t);

/* Looks: the next moment it may be otherwise. Has somebody the turn, or waits for it? */
static inline bool shms_turns_taken(const struct shms_turns *t)
{
	return atomic_load_explicit(&t->taken, memory_order_relaxed);
}

static inline bool shms_turns_waited(const struct shms_turns *t)
{
	return atomic_load_explicit(&t->first, memory_order_relaxed) != NULL;
}

#endif
