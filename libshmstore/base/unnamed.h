/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unnamed.h: files that have no name until they are whole.
 *
 * Where O_TMPFILE is refused (gVisor says EISDIR, some file systems EOPNOTSUPP, a filter EPERM), or
 * a file can never be linked, such a file has a name after all, aside: it loses that when it gets
 * its own (shms_link_fd()) or when shms_close_fd() closes it. A process that is killed leaves it
 * there. Names are of a form of their own, so that gc finds them and the books know them.
 */
#ifndef SHMS_UNNAMED_H
#define SHMS_UNNAMED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

/* Aside from the part of a store that the file is to be in: what lies there is the
 * store's, and goes with it. */
#define SHMS_ASIDE_STORE "../recycle"

/* Where such a file is to be. */
struct shms_unnamed {
	int dir_fd;   /* it will be linked there, or in the same file system */
	int aside_fd; /* below which aside is, where it is needed */
	/* a directory that only who may write to dir_fd can write to, or that is sticky */
	const char *aside;
};

/* openat(2), noted (transient.c), of a new file: flags besides O_CLOEXEC, and O_TMPFILE or O_CREAT.
 * The group's rights are given whatever the umask. -1 and errno. */
int shms_unnamed_open(const struct shms_unnamed *u, int flags, mode_t mode);
/* The same within a part of a store. */
int shms_unnamed_part(int part_fd, int flags, mode_t mode);
/* Is it the name of one, whose maker may be gone? */
bool shms_unnamed_is(const char *name);

/* Moves the one that fd is from aside to name, if it is there. 1: done; 0: it
 * has no name aside; -errno. */
int shms_unnamed_move(int fd, int dir_fd, const char *name);

/* A file without a name could not be linked: those that follow get a name aside. */
void shms_unnamed_not_linked(void);

/* For transient.c. fd is being closed: what it has aside goes. */
extern atomic_uint shms_unnamed_n; /* that have a name aside */
void shms_unnamed_closed(int fd);
/* Around a fork. The child has none. */
void shms_unnamed_fork_prepare(void);
void shms_unnamed_fork_parent(void);
void shms_unnamed_fork_child(void);

#endif
