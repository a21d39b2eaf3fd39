/* SPDX-License-Identifier: Apache-2.0 */
/* acquire.h: the directory of a store, and its page, locked: whose lock that is, owns the store. */
#ifndef SHMS_ACQUIRE_H
#define SHMS_ACQUIRE_H

#include <shmstore/shmstore.h>
#include <stdbool.h>

/*
 * Makes the located store (parent_fd, base, path), or takes over that of an owner who died, and
 * opens its directories. May be called again after an error. 0; -EBUSY: a live process holds it;
 * -EPERM: another user's, or no directory; -ENOSPC; others of the file system.
 */
int shms_acquire(struct shmstore *s, const struct shmstore_options *o);
/* Opens the three directories in dir_fd; makes those that are missing where
 * create says so. 0 or -errno. */
int shms_acquire_dirs(struct shmstore *s, bool create);

#endif
