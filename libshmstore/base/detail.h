/* SPDX-License-Identifier: Apache-2.0 */
/*
 * detail.h: what this thread's last failure was about: a sentence and a path, for
 * shmstore_error_detail() and _path(). It is said near the cause, where path, sizes and the one
 * reason are known; the public functions' door (door.h) forgets it before each call.
 */
#ifndef SHMS_DETAIL_H
#define SHMS_DETAIL_H

#include <stdbool.h>
#include <stddef.h>

void shms_detail_clear(void);
/* path may be NULL. Returns error, so that it can be returned. */
int shms_detail(int error, const char *path, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* -EINVAL, of an argument that must not be NULL, and of flags beyond those that a call takes. */
int shms_detail_null(const char *argument);
int shms_detail_flags(unsigned flags, unsigned taken);
/* -EINVAL, of an object that is over the limits. */
int shms_detail_shape(size_t n_buffers, size_t header_size);

/*
 * Takes a structure of the caller's, which begins with its size, over the defaults in *ret: a
 * program built with an older header has fewer fields, but least bytes. from: NULL: the defaults
 * stay. what, init: its name and its initializer, for the sentence. 0, -EINVAL.
 */
int shms_take_sized(void *ret, size_t size, const void *from, size_t least, const char *what,
		    const char *init);
#define SHMS_UPTO(type, member) \
	(offsetof(struct type, member) + sizeof(((struct type *)NULL)->member))

/* The sentence goes on with the system calls that are refused to us, where
 * error may stem from that. */
void shms_detail_refused(int error);

/* The error that the thread's sentence is about; 0 = none was said. */
extern _Thread_local int shms_detail_told;
/* Is the sentence that was said last about error? One about -EAGAIN is
 * about whatever became of that. */
bool shms_detail_is(int error);

#endif
