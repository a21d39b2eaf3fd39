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

#endif
