/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bell.h: a descriptor by which an event loop learns that a queue has an entry, or that
 * a connection has something to read. It is made when the program first asks for it;
 * until then ringing costs nothing.
 *
 * Threads: the caller has a lock, which is the queue's, around each call. Fork: a child calls
 * shms_bell_deinit(), and gets a bell of its own when it asks for one.
 */
#ifndef SHMS_BELL_H
#define SHMS_BELL_H

#include <stdbool.h>

struct shms_bell {
	int event_fd; /* readable: it was rung; -1: the program did not ask for a descriptor */
	int epoll_fd; /* readable: event_fd is, or the connection is */
};

#define SHMS_BELL_NULL ((struct shms_bell){.event_fd = -1, .epoll_fd = -1})

void shms_bell_deinit(struct shms_bell *b);
/* The queue has an entry. */
void shms_bell_ring(const struct shms_bell *b);
/* The queue is empty. */
void shms_bell_quiet(const struct shms_bell *b);
/*
 * The descriptor, the same at each call. rung: the queue has an entry. Ownership: the bell's.
 * -EMFILE, -ENOMEM, another -errno.
 */
int shms_bell_fd(struct shms_bell *b, int connection_fd, bool rung);

#endif
