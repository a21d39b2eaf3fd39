/* SPDX-License-Identifier: Apache-2.0 */
/* parts.h: what a handle's opening (store.c), fork (atfork.c) and end ask of this room's files. */
#ifndef SHMS_PARTS_H
#define SHMS_PARTS_H

#include <shmstore/shmstore.h>
#include <stdbool.h>

/*
 * acquire.c: makes the located store (parent_fd, base, path), or takes over that of an owner who
 * died, and opens its directories: whose lock its page has, owns it. May be called again after an
 * error. 0; -EBUSY: a live process holds it; -EPERM: another user's, or no directory; -ENOSPC;
 * others of the file system.
 */
int shms_acquire(struct shmstore *s, const struct shmstore_options *o);
/* Opens the three directories in dir_fd; makes those that are missing where
 * create says so. 0 or -errno. */
int shms_acquire_dirs(struct shmstore *s, bool create);

/* peer.c: removes our address, if it is still ours. */
void shms_peer_withdraw(struct shmstore *s);

/*
 * daemon.c: the store meets the daemon, as mode (SHMSTORE_DAEMON_*) and $SHMSTORE_DAEMON say. 0, or
 * -ETIMEDOUT with SHMSTORE_DAEMON_REQUIRED where no daemon took the store in.
 */
int shms_daemon_open(struct shmstore *s, unsigned mode);

/*
 * atfork.c: a forked child gives up every store of its parent at once: the lock, so that the
 * parent's death is seen, and every descriptor that would keep the parent's memory alive. From here
 * on a fork in any thread finds the store, until shms_ours_del(); before anything of it is locked.
 */
void shms_atfork_add(struct shmstore *s);
/* The descriptors that the handle owns. */
void shms_atfork_close_fds(struct shmstore *s);

/* writer.c: private memory that writers keep for the next small object: it goes with the handle. */
void shms_writer_deinit(struct shmstore *s);

#endif
