/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lightlock.h: a mutex that the only thread of a process does not take, since nobody is there to be
 * kept out. Under it no thread may be started, by whoever holds it.
 */
#ifndef SHMS_LIGHTLOCK_H
#define SHMS_LIGHTLOCK_H

#include <pthread.h>
#include <stdbool.h>

#include "onethread.h"

struct shms_lightlock {
	pthread_mutex_t mutex;
	bool alone; /* it is held by the only thread, without the mutex */
};

static inline void shms_lightlock_init(struct shms_lightlock *l)
{
	pthread_mutex_init(&l->mutex, NULL);
	l->alone = false;
}

static inline void shms_lightlock_deinit(struct shms_lightlock *l)
{
	pthread_mutex_destroy(&l->mutex);
}

static inline void shms_lightlock_take(struct shms_lightlock *l)
{
	if (SHMS_ONE_THREAD)
		l->alone = true;
	else
		pthread_mutex_lock(&l->mutex);
}

/* As it was taken, however many threads there are by now. */
static inline void shms_lightlock_release(struct shms_lightlock *l)
{
	if (l->alone)
		l->alone = false;
	else
		pthread_mutex_unlock(&l->mutex);
}

static inline void shms_lightlock_cleanup(struct shms_lightlock *const *l)
{
	shms_lightlock_release(*l);
}

static inline struct shms_lightlock *shms_lightlock_hold(struct shms_lightlock *l)
{
	shms_lightlock_take(l);
	return l;
}

/* The lock is held from here to the end of the block. */
#define SHMS_LIGHT_HELD(lock)                                              \
	struct shms_lightlock *const held_                                 \
		__attribute__((unused, cleanup(shms_lightlock_cleanup))) = \
			shms_lightlock_hold(lock)

#endif
