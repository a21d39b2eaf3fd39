/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lightlock.h: a mutex that the only thread of a process does not take, since nobody is there to be
 * kept out, and counts that it changes without a locked instruction. Under the mutex no thread may
 * be started, by whoever holds it.
 */
#ifndef SHMS_LIGHTLOCK_H
#define SHMS_LIGHTLOCK_H

#include <features.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Is this process's only thread asking? Then nobody cancels it, nobody forks beside
 * it, and what guards against that can be left out. The C library knows (2.32 and later); elsewhere
 * the answer is no. A thread that is started makes it no before it runs.
 */
#ifdef __GLIBC_PREREQ
#if __GLIBC_PREREQ(2, 32)
#include <sys/single_threaded.h>
#define SHMS_ONE_THREAD (__libc_single_threaded != 0)
#endif
#endif
#ifndef SHMS_ONE_THREAD
#define SHMS_ONE_THREAD 0
#endif

struct shms_lightlock {
	pthread_mutex_t mutex;
	bool alone; /* it is held by the only thread, without the mutex */
};

static inline void shms_lightlock_init(struct shms_lightlock *l)
{
	pthread_mutex_init(&l->mutex, NULL);
	l->alone = false;
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

/* Counts that no other process changes. Returns the new value. Of threads that
 * count, nothing that they did before is seen because of it. */
static inline uint64_t shms_light_add(_Atomic uint64_t *n, uint64_t add)
{
	uint64_t now;

	if (!SHMS_ONE_THREAD)
		return atomic_fetch_add_explicit(n, add, memory_order_relaxed) + add;
	now = atomic_load_explicit(n, memory_order_relaxed) + add;
	atomic_store_explicit(n, now, memory_order_relaxed);
	return now;
}

/* A reference less. Returns how many are left; the last one sees all that the others did. */
static inline uint64_t shms_light_unref(_Atomic uint64_t *n)
{
	if (SHMS_ONE_THREAD)
		return shms_light_add(n, UINT64_MAX);
	return atomic_fetch_sub_explicit(n, 1, memory_order_acq_rel) - 1;
}

#endif
