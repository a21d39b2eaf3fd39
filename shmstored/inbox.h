/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inbox.h: where objects from other users arrive: one kept store per receiving user, stores/inbox-<uid>, owned by that user, of which
 * only handoff/ is used. It is a store like any other: walked, accounted, its expired leases removed by any gc.
 */
#ifndef INBOX_H
#define INBOX_H

#include <stddef.h>
#include <sys/types.h>

struct account;

/* The open handoff/ directory of uid's inbox, made where it is missing, and its path. Blocks: for a worker thread. 0, -errno. */
int inbox_open(struct account *a, uid_t uid, int *ret_fd, char *ret_path, size_t path_size);

#endif
