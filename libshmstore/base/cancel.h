/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cancel.h: pthread_cancel() waits until a call has returned.
 *
 * Most calls of the kernel that we make are points where a thread may be cancelled. A thread that
 * ended there would take store.names, the flock of the tier, or a descriptor with it, and every
 * other thread would wait for that for ever. So calls that hold something hold cancellation off, at
 * their door: two stores to the thread's own memory, no system call. Where there is but one thread,
 * nobody waits for it, and it is left alone.
 */
#ifndef SHMS_CANCEL_H
#define SHMS_CANCEL_H

#include <pthread.h>

#include "cleanup.h"
#include "lightlock.h"

#define SHMS_CANCEL_AS_IT_IS (-1)

static inline int shms_cancel_off(void)
{
	int state = SHMS_CANCEL_AS_IT_IS;

	if (!SHMS_ONE_THREAD)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	return state;
}

/* The calls that start threads end them before they return. */
static inline void shms_cancel_back(const int *state)
{
	if (*state != SHMS_CANCEL_AS_IT_IS)
		pthread_setcancelstate(*state, NULL);
}

/* As the first declaration of a function: the caller's state is back when it returns. */
#define SHMS_NO_CANCEL                                                               \
	const int cancel_state_ __attribute__((unused, cleanup(shms_cancel_back))) = \
		shms_cancel_off()

#endif
