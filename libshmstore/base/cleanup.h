/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cleanup.h: locals that clean up after themselves.
 * Hand a value over with shms_take_fd() or by nulling the local.
 */
#ifndef SHMS_CLEANUP_H
#define SHMS_CLEANUP_H

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/file.h>

#include "lightlock.h"
#include "transient.h"

#define shms_cleanup(fn) __attribute__((cleanup(fn)))

static inline int shms_close_fd(int fd)
{
	if (fd >= 0) {
		int saved = errno;
		shms_transient_close(fd);
		errno = saved;
	}
	return -1;
}

static inline void shms_cleanup_fd(int *fd)
{
	*fd = shms_close_fd(*fd);
}

/* One with a flock: a child that inherited it shall not keep the lock. */
static inline int shms_unlock_fd(int fd)
{
	int saved = errno;

	if (fd >= 0)
		flock(fd, LOCK_UN);
	errno = saved;
	return shms_close_fd(fd);
}

static inline void shms_cleanup_locked(int *fd)
{
	*fd = shms_unlock_fd(*fd);
}

static inline void shms_cleanup_free(void *p)
{
	free(*(void **)p);
}

static inline void shms_cleanup_dir(DIR **d)
{
	if (*d)
		closedir(*d);
}

static inline void shms_cleanup_mutex(pthread_mutex_t *const *m)
{
	pthread_mutex_unlock(*m);
}

static inline pthread_mutex_t *shms_mutex_take(pthread_mutex_t *m)
{
	pthread_mutex_lock(m);
	return m;
}

/* The mutex is held from here to the end of the block. */
#define SHMS_HELD(mutex)                                                                    \
	pthread_mutex_t *const held_ __attribute__((unused, cleanup(shms_cleanup_mutex))) = \
		shms_mutex_take(mutex)

#define _fd_     shms_cleanup(shms_cleanup_fd)
#define _locked_ shms_cleanup(shms_cleanup_locked)
#define _free_   shms_cleanup(shms_cleanup_free)
#define _dir_    shms_cleanup(shms_cleanup_dir)

static inline int shms_take_fd(int *fd)
{
	int taken = *fd;
	*fd = -1;
	return taken;
}

/*
 * pthread_cancel() waits until a call has returned.
 *
 * Most calls of the kernel that we make are points where a thread may be cancelled. A thread that
 * ended there would take store.names, the flock of the tier, or a descriptor with it, and every
 * other thread would wait for that for ever. So calls that hold something hold cancellation off, at
 * their door: two stores to the thread's own memory, no system call. Where there is but one thread,
 * nobody waits for it, and it is left alone.
 */

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
