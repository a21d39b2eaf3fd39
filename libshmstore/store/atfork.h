/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atfork.h: a forked child gives up every store of its parent at once: the lock, so that the
 * parent's death is seen, and every descriptor that would keep the parent's memory alive.
 */
#ifndef SHMS_ATFORK_H
#define SHMS_ATFORK_H

struct shmstore;

/* From here on a fork in any thread finds the store, until shms_ours_del(); before
 * anything of it is locked. */
void shms_atfork_add(struct shmstore *s);
/* The descriptors that the handle owns. */
void shms_atfork_close_fds(struct shmstore *s);

#endif
