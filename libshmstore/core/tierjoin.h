/* SPDX-License-Identifier: Apache-2.0 */
/* tierjoin.h: the moment from which other processes may change a store's names (nameslock.h). */
#ifndef SHMS_TIERJOIN_H
#define SHMS_TIERJOIN_H

#include "bootclock.h"
#include "handle.h"

#define SHMS_TIER_LOOK_MS 1000u

void shms_tier_look(struct shmstore *s);
/* At calls that put or delete, with no lock held: what time it is, and whether there is a tier, in
 * which the store takes part from then on. */
static inline void shms_tier_notice(struct shmstore *s)
{
	uint64_t now_ms = shms_lately_boot_ms();

	atomic_store_explicit(&s->called_ms, now_ms, memory_order_relaxed);
	if (!atomic_load_explicit(&s->tier_on, memory_order_relaxed) &&
	    now_ms - atomic_load_explicit(&s->tier_looked_ms, memory_order_relaxed) >=
		    SHMS_TIER_LOOK_MS)
		shms_tier_look(s);
}
/* At open: is it a store that took part before, or a partition with a tier? */
int shms_tier_join(struct shmstore *s);

#endif
