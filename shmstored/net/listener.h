/* SPDX-License-Identifier: Apache-2.0 */
/* listener.h: the socket: made by us or by systemd, and how many may come
 * through it, in all and per user. */
#ifndef LISTENER_H
#define LISTENER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * How many may come, in all and per user, and how fast. Pure: numbers and time in, decisions out.
 *
 * Every connection that comes costs a token, one that is refused or dropped more of them; without
 * tokens none is accepted for a moment. So who opens connections without end takes a bounded share
 * of our time, and the rest of its own time waiting for the kernel.
 */
#define CROWD_BURST 2000u /* tokens that are kept */
#define CROWD_RATE  8000u /* that come back in a second */
/* that one costs more which is refused, or dropped for a fault; 1 costs each */
#define CROWD_FAULT 16u

/* Zeroed: nobody has come yet. */
struct crowd {
	struct crowd_user *users; /* that have connections: a list, the last one that came first */
	uint32_t n;
	uint64_t full_ns; /* when no token will be missing */
};

enum crowd_verdict {
	CROWD_WELCOME,
	CROWD_FULL,      /* no place for anybody */
	CROWD_USER_FULL, /* this user has its share */
	CROWD_NO_MEMORY,
};

struct crowd_limits {
	uint32_t all, user;
	bool admin; /* one of the places that are kept for administrators will do */
};

void crowd_deinit(struct crowd *c);
/* One more of uid's: counted where it is welcome. Takes tokens. */
enum crowd_verdict crowd_enter(struct crowd *c, uid_t uid, const struct crowd_limits *limits,
			       uint64_t now_ns);
void crowd_leave(struct crowd *c, uid_t uid);
/* One was dropped for a fault. */
void crowd_fault(struct crowd *c, uint64_t now_ns);
/* When the next one may come: now_ns or earlier = at once. */
uint64_t crowd_ready_ns(const struct crowd *c);

struct host;
struct listener;

/* Takes systemd's descriptor where there is one, else makes config's socket (a stale one is
 * removed, a live one is -EADDRINUSE). */
int listener_new(struct host *h, struct listener **ret);
/* Closes it; removes a socket that we made. */
struct listener *listener_free(struct listener *l);

/* A connection of uid's ended; dropped: by us, for a fault. */
void listener_left(struct listener *l, uid_t uid, bool dropped);

#endif
