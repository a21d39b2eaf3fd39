/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lightcount.h: counts that no other process changes, and that the only thread of a process changes
 * without a locked instruction.
 */
#ifndef SHMS_LIGHTCOUNT_H
#define SHMS_LIGHTCOUNT_H

#include <stdatomic.h>
#include <stdint.h>

#include "onethread.h"

/* Returns the new value. Of threads that count, nothing that they did
 * before is seen because of it. */
static inline uint64_t shms_light_add(_Atomic uint64_t *n, uint64_t add)
{
	uint64_t now;

	if (!SHMS_ONE_THREAD)
		return atomic_fetch_add_explicit(n, add, memory_order_relaxed) + add;
	now = atomic_load_explicit(n, memory_order_relaxed) + add;
	atomic_store_explicit(n, now, memory_order_relaxed);
	return now;
}

/* A reference less. Returns how many are left; the last one sees all that the others did. */
static inline uint64_t shms_light_unref(_Atomic uint64_t *n)
{
	if (SHMS_ONE_THREAD)
		return shms_light_add(n, UINT64_MAX);
	return atomic_fetch_sub_explicit(n, 1, memory_order_acq_rel) - 1;
}

#endif
