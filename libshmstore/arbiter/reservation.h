/* SPDX-License-Identifier: Apache-2.0 */
/* reservation.h: reservations, for the library's own modules. */
#ifndef SHMS_RESERVATION_H
#define SHMS_RESERVATION_H

#include <shmstore/arbiter.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arbcontext.h"

#define SHMS_ARB_FLAGS (SHMSTORE_ARB_NONBLOCK | SHMSTORE_ARB_SPILL | SHMSTORE_ARB_ASYNC)

struct shms_arb_ask {
	uint32_t pool;
	uint64_t bytes;
	struct shmstore_arb_how how; /* context set */
	bool no_lease;               /* the daemon is to see this one */
	bool no_attempt;             /* it ends within the call that makes it */
};

/* As shmstore_arb_reserve(). */
int shms_arb_reserve(struct shmstore *s, const struct shms_arb_ask *ask,
		     struct shmstore_arb_reservation *ret);
/* bytes of r, no more than it has, have become memory of the partition. */
void shms_arb_settle(struct shmstore *s, struct shmstore_arb_reservation *r, uint64_t bytes);
/* Gives leased bytes back. */
void shms_lease_give(struct shmstore *s, uint32_t pool, uint64_t bytes);

/*
 * The reservations that an attempt made and has not given back: a roll back gives back by them
 * the bytes that the attempt cannot name any more.
 *
 * An attempt is of one context and runs on one thread. Attempts of a context are nested; each
 * has a number, larger than those of all before. A reservation carries it; it is of the
 * innermost attempt under way with a number no larger: so what an inner attempt leaves is the
 * outer one's, and what an earlier attempt left is nobody's. Reservations may be released by
 * other threads, though seldom.
 */

struct shms_attempt {
	struct shms_attempt *prev, *next; /* arb->attempts */
	struct shms_attempt *outer;       /* of the same context */
	struct shmstore_arb_context *context;
	uint32_t serial;
	_Atomic uint64_t leased[WIRE_LEASES]; /* bytes, by pool */
	uint32_t *ids;                        /* arb->lock: of the daemon's */
	size_t n_ids, room;
};

/* Room for n more ids, before they are asked for. 0, -ENOMEM. */
int shms_attempt_room(struct shmstore_arb_context *c, size_t n);
/* Reserved: books r (ids where it has one, else its lease), and sets whose it is. */
void shms_attempt_note(struct shmstore_arb_context *c, struct shmstore_arb_reservation *r);
/* Leased bytes more of a reservation that was noted. */
void shms_attempt_lease(struct shmstore *s, const struct shmstore_arb_reservation *r,
			uint64_t bytes);
/* Leased bytes of r (UINT64_MAX-less: as many as there are) go, and with id its id. */
void shms_attempt_forget(struct shmstore *s, const struct shmstore_arb_reservation *r,
			 uint64_t leased, bool id);

#endif
