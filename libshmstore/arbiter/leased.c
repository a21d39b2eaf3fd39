/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leased.c: see leased.h.
 *
 * A lease that the daemon would not raise means that others want the room: for a while each reservation is asked for by itself, one round trip instead of
 * two. Killed after a charge: the daemon counts what was granted and not settled until it sees the death, and nothing after.
 */
#include "leased.h"

#include "sys.h"

#define MS      1000000ull
#define REST_NS (20 * MS)    /* not asked for more, after it would give no more */
#define OFF_NS  (10000 * MS) /* the same where it gives none at all */
#define GUESS \
	65536u /* a small reservation, before the daemon has said what that is: of a private pool it does with the first lease */

/* Might more of this pool's lease help? */
static struct wire_lease *worth_asking(const struct shmstore *s, const struct shmstore_arb_context *c, uint32_t pool,
				       uint64_t bytes, unsigned flags)
{
	if (pool > SHMSTORE_ARB_PARTITION && pool <= WIRE_LEASES &&
	    !atomic_load_explicit(&s->page->leases[pool - 1].max, memory_order_relaxed))
		return shms_lease_of(s, c, pool, 0, flags) && bytes <= GUESS ? &s->page->leases[pool - 1] : NULL;
	return shms_lease_of(s, c, pool, bytes, flags);
}

bool shms_lease_more(struct shmstore *s, struct shmstore_arb_context *c, uint32_t pool, uint64_t bytes, unsigned flags)
{
	struct wire_lease *l = worth_asking(s, c, pool, bytes, flags);
	struct wire_arb m = {.op = WIRE_ARB_LEASE, .context = c->id, .pool = pool, .bytes = bytes};
	_Atomic uint64_t *rest = pool <= WIRE_LEASES ? &s->arb->lease_ns[pool - 1] : NULL;
	struct shms_reply reply;
	uint64_t now;
	int r;

	if (!l || !rest || atomic_load_explicit(&l->wanted, memory_order_relaxed))
		return false;
	now = shms_now_mono_ns();
	if (now < atomic_load_explicit(rest, memory_order_relaxed))
		return false;
	r = shms_arb_call(s, &m, NULL, atomic_load_explicit(&c->generation, memory_order_relaxed), &reply);
	if (r == SHMSTORE_ARB_OK)
		return true;
	atomic_store_explicit(rest, now + (r == SHMSTORE_ARB_AGAIN ? REST_NS : OFF_NS), memory_order_relaxed);
	return false;
}

void shms_lease_give(struct shmstore *s, uint32_t pool, uint64_t bytes)
{
	struct wire_arb m = {.op = WIRE_ARB_LEASE_CALLED, .flags = WIRE_ARB_QUIET, .pool = pool};

	if (pool && pool <= WIRE_LEASES && wire_lease_uncharge(&s->page->leases[pool - 1], bytes))
		shms_arb_post(s, &m, 0);
}

void shms_lease_settle(struct shmstore *s, uint32_t pool, uint64_t bytes)
{
	struct wire_lease *l = &s->page->leases[pool - 1];
	struct wire_arb m = {.op = WIRE_ARB_LEASE_CALLED, .flags = WIRE_ARB_QUIET, .pool = pool};

	wire_lease_settle(l, bytes);
	/* If anybody waits for the difference, the daemon counts anew what has become memory. */
	if (atomic_load_explicit(&l->wanted, memory_order_relaxed))
		shms_arb_post(s, &m, 0);
}
