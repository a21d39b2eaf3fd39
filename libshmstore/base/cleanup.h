/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cleanup.h: descriptors that a call opens for itself, and locals that clean up after themselves.
 * Hand a value over with shms_take_fd() or by nulling the local.
 */
#ifndef SHMS_CLEANUP_H
#define SHMS_CLEANUP_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/types.h>

/*
 * transient.c: descriptors that a call opens for itself, and that a child of a fork must not keep.
 *
 * An open file keeps an object's memory, a locked one keeps its lock; both live on in a child that
 * does not exec. So each of ours is noted from the moment it is open until it is closed, and the
 * child's side of fork() closes what is noted. fork() waits for threads that are just between the
 * kernel's call and the note, a microsecond, and they for it.
 *
 * shms_openat() is for files that there are, or that have a name; unnamed.c for those
 * that get one later. Close its descriptors with shms_close_fd() (or _fd_, _locked_),
 * never close() or closedir().
 */

/* openat(2), noted. mode counts with O_CREAT and O_TMPFILE only. */
int shms_openat(int dir_fd, const char *path, int flags, mode_t mode);
/* The same of a file that is there, and no symlink, without a wait. flags: O_RDONLY, O_RDWR. */
static inline int shms_open_file(int dir_fd, const char *name, int flags)
{
	return shms_openat(dir_fd, name, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
}
/* shms_open_beneath(), noted. */
int shms_openat_beneath(int dir_fd, const char *path, int flags);
/* close(2), and the note's end; also of what was never noted. */
void shms_transient_close(int fd);
/* fd outlives the call, and in a child nobody closes it: its holder asks whose it is. */
void shms_transient_hold(int fd);

/* mmap(2), to read and to write, of what no child inherits at any moment. MAP_FAILED and errno. */
void *shms_map_ours(size_t size, int flags, int fd);

/* ---- locals ---------------------------------------------------------------------------------- */

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
