/* SPDX-License-Identifier: Apache-2.0 */
/* listener.h: the socket: made by us or by systemd, and how many may come through it, in all and per user. */
#ifndef LISTENER_H
#define LISTENER_H

#include <stdbool.h>
#include <sys/types.h>

struct host;
struct listener;

/* Takes systemd's descriptor where there is one, else makes config's socket (a stale one is removed, a live one is -EADDRINUSE). */
int listener_new(struct host *h, struct listener **ret);
/* Closes it; removes a socket that we made. */
struct listener *listener_free(struct listener *l);

/* A connection of uid's ended; dropped: by us, for a fault. */
void listener_left(struct listener *l, uid_t uid, bool dropped);

#endif
