/* SPDX-License-Identifier: Apache-2.0 */
/* reservation.h: reservations, for the library's own modules. */
#ifndef SHMS_RESERVATION_H
#define SHMS_RESERVATION_H

#include <shmstore/arbiter.h>
#include <stdbool.h>

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

#endif
