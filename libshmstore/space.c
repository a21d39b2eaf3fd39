/* SPDX-License-Identifier: Apache-2.0 */
/*
 * space.c: room on a full partition: first our own recycled files, then what dead stores left, and where there is a disk tier what is used
 * least. The sweep of dead stores looks at every lock, so a partition that stays full is swept four times a second at most, however many
 * puts fail. What an eviction made room for others may take first, so it is tried again, but not for ever.
 */
#include "space.h"

#include "evict.h"
#include "gc.h"
#include "store.h"
#include "sys.h"

#define SWEEP_EVERY_NS 250000000ull
#define TRIES_MAX      32

/* True: dead stores were looked for just now. */
static bool sweep(struct shmstore_partition *p)
{
	uint64_t now = shms_now_mono_ns(), last = atomic_load_explicit(&p->swept_ns, memory_order_relaxed);

	if (last && now - last < SWEEP_EVERY_NS)
		return false;
	if (!atomic_compare_exchange_strong_explicit(&p->swept_ns, &last, now, memory_order_relaxed,
						     memory_order_relaxed))
		return false;
	shms_gc_sweep(p);
	return true;
}

bool shms_space_make(struct shmstore *s, uint64_t bytes, unsigned flags, int tries)
{
	if (shms_recycle_trim(s, true))
		return true;
	if (tries <= 1 && sweep(s->p))
		return true;
	return !(flags & SHMSTORE_NO_EVICT) && tries < TRIES_MAX && shms_evict_for(s, bytes);
}
