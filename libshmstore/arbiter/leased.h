/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leased.h: bytes of a pool that may be reserved without asking (struct wire_lease of wire.h): the owner's half.
 *
 * The way of every small reservation: no lock, no memory, no system call.
 */
#ifndef SHMS_LEASED_H
#define SHMS_LEASED_H

#include <shmstore/arbiter.h>
#include <stdbool.h>
#include <stdint.h>

#include "arbcontext.h"

/* Must a reserve of this context in this pool be the daemon's to see? */
static inline struct wire_lease *shms_lease_of(const struct shmstore *s, const struct shmstore_arb_context *c,
					       uint32_t pool, uint64_t bytes, unsigned flags)
{
	struct wire_lease *l;

	if (pool > WIRE_LEASES || c->slow || (flags & SHMSTORE_ARB_SPILL) || !shms_context_bound(s, c))
		return NULL;
	l = &s->page->leases[pool - 1];
	return bytes <= atomic_load_explicit(&l->max, memory_order_relaxed) ? l : NULL;
}

/* Charges the lease. false: nothing was. */
static inline bool shms_lease_take(const struct shmstore *s, const struct shmstore_arb_context *c, uint32_t pool,
				   uint64_t bytes, unsigned flags)
{
	struct wire_lease *l = shms_lease_of(s, c, pool, bytes, flags);

	return l && wire_lease_charge(l, bytes);
}

/* The lease was short of bytes: asks the daemon to raise it, unless it would not lately. true: try again. */
bool shms_lease_more(struct shmstore *s, struct shmstore_arb_context *c, uint32_t pool, uint64_t bytes, unsigned flags);
/* Gives charged bytes back. */
void shms_lease_give(struct shmstore *s, uint32_t pool, uint64_t bytes);
/* Charged bytes have become memory that the kernel counts. */
void shms_lease_settle(struct shmstore *s, uint32_t pool, uint64_t bytes);

#endif
