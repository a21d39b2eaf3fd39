/* SPDX-License-Identifier: Apache-2.0 */
/*
 * space.c: room on a full partition: first our own recycled files, then what dead stores left. The sweep of dead stores looks
 * at every lock, so a partition that stays full is swept four times a second at most, however many puts fail.
 */
#include "space.h"

#include "gc.h"
#include "store.h"
#include "sys.h"

#define SWEEP_EVERY_NS 250000000ull

bool shms_space_make(struct shmstore *s, int tries)
{
	struct shmstore_partition *p = s->p;
	uint64_t now, last;

	if (shms_recycle_trim(s, true))
		return true;
	if (tries > 1)
		return false;
	now = shms_now_mono_ns();
	last = atomic_load_explicit(&p->swept_ns, memory_order_relaxed);
	if (last && now - last < SWEEP_EVERY_NS)
		return false;
	if (!atomic_compare_exchange_strong_explicit(&p->swept_ns, &last, now, memory_order_relaxed,
						     memory_order_relaxed))
		return false;
	shms_gc_sweep(p);
	return true;
}
