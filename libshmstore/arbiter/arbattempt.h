/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbattempt.h: what an attempt reserved and has not given back: with it a roll back gives back
 * what the attempt cannot name any more.
 *
 * An attempt is of one context and runs on one thread. Attempts of a context are nested; each
 * has a number, larger than those of all before. A reservation carries it; it is of the
 * innermost attempt under way with a number no larger: so what an inner attempt leaves is the
 * outer one's, and what an earlier attempt left is nobody's. Reservations may be released by
 * other threads, though seldom.
 */
#ifndef SHMS_ARBATTEMPT_H
#define SHMS_ARBATTEMPT_H

#include <shmstore/arbiter.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "arbcontext.h"

struct shms_attempt {
	struct shms_attempt *next, **prev; /* arb->attempts */
	struct shms_attempt *outer;        /* of the same context */
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
