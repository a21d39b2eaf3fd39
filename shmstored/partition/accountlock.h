/* SPDX-License-Identifier: Apache-2.0 */
/* accountlock.h: the lock on a partition's marker, which says that a daemon lives. */
#ifndef ACCOUNTLOCK_H
#define ACCOUNTLOCK_H

#include <sys/types.h>

struct account;
struct stat;

/* Takes it for a->fd's partition into a->lock_fd. 0; -EBUSY: another daemon has it; -errno. Said in the log. */
int accountlock_take(struct account *a);
/* Each second: takes it where it could not be had at the start. */
void accountlock_tick(struct account *a);

/* The process that holds a lock (flock) of that file, and its user. -ENOENT: nobody, or it cannot be seen from here. */
int accountlock_holder(const struct stat *file, pid_t *ret_pid, uid_t *ret_uid);

#endif
