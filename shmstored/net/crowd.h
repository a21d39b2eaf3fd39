/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crowd.h: how many may come, in all and per user, and how fast. Pure: numbers and time in, decisions out.
 *
 * Every connection that comes costs a token, one that is refused or dropped more of them; without tokens none is accepted for a moment. So who opens
 * connections without end takes a bounded share of our time, and the rest of its own time waiting for the kernel.
 */
#ifndef CROWD_H
#define CROWD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CROWD_BURST 2000u /* tokens that are kept */
#define CROWD_RATE  8000u /* that come back in a second */
#define CROWD_FAULT 16u   /* that one costs more which is refused, or dropped for a fault; 1 costs each */

struct crowd;

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

int crowd_new(uint64_t now_ns, struct crowd **ret);
struct crowd *crowd_free(struct crowd *c);
/* One more of uid's: counted where it is welcome. Takes tokens. */
enum crowd_verdict crowd_enter(struct crowd *c, uid_t uid, const struct crowd_limits *limits, uint64_t now_ns);
void crowd_leave(struct crowd *c, uid_t uid);
/* One was dropped for a fault. */
void crowd_fault(struct crowd *c, uint64_t now_ns);
/* When the next one may come: now_ns or earlier = at once. */
uint64_t crowd_ready_ns(const struct crowd *c);

#endif
