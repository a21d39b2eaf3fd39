/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transient.h: descriptors that a call opens for itself, and that a child of a fork must not keep.
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
#ifndef SHMS_TRANSIENT_H
#define SHMS_TRANSIENT_H

#include <fcntl.h>
#include <stddef.h>

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

#endif
