/* SPDX-License-Identifier: Apache-2.0 */
/* memrules.h: what scenarios and histories say of a host's memory, and the daemon does not ask:
 * when it is too full, and for whom. */
#ifndef MEMRULES_H
#define MEMRULES_H

#include <errno.h>

#include "memtext.h"

#define MEMLIMIT_RESERVE_LEAST (INT64_C(500) << 20)
#define MEMLIMIT_RESERVE_MOST  (INT64_C(10) << 30)

/*
 * The bytes above which a memory of total is too full: fraction of it, and never fewer than leave
 * min_free. min_free unknown or negative: only the fraction counts. isolated: what the workers' own
 * cgroup may use; where it is known, it is the threshold.
 * Return: 0, *ret unknown if total is; -EINVAL: fraction is more than 1,
 * or min_free more than total.
 */
static inline int memlimit_threshold(struct amount total, struct ratio fraction,
				     struct amount min_free, struct amount isolated,
				     struct amount *ret)
{
	int64_t threshold;
	bool floored = min_free.known && min_free.bytes >= 0;

	if (isolated.known) {
		*ret = isolated;
		return 0;
	}
	if (ratio_compare(fraction, RATIO(1, 1)) > 0 ||
	    (floored && total.known && min_free.bytes > total.bytes))
		return -EINVAL;
	if (!total.known) {
		*ret = AMOUNT_UNKNOWN;
		return 0;
	}
	threshold = ratio_floor(fraction, total.bytes);
	if (floored && total.bytes - min_free.bytes > threshold)
		threshold = total.bytes - min_free.bytes;
	*ret = amount_of(threshold);
	return 0;
}

/* used > threshold; false if used, total or threshold is unknown. */
static inline bool memlimit_above(struct memlimit_use use, struct amount threshold)
{
	return use.used.known && use.total.known && threshold.known &&
	       use.used.bytes > threshold.bytes;
}

/* The smaller of two memories, with its own use: the cgroup's if it is not larger than the host. */
static inline struct memlimit_use memlimit_combine(struct memlimit_use host,
						   struct memlimit_use cgroup)
{
	if (!cgroup.total.known || (host.total.known && host.total.bytes < cgroup.total.bytes))
		return host;
	return cgroup;
}

/* The memory that the system keeps for itself: a tenth of total, within the bounds above. */
static inline struct amount memlimit_reserve(struct amount total)
{
	int64_t tenth;

	if (!total.known)
		return total;
	tenth = ratio_floor(RATIO(1, 10), total.bytes);
	if (tenth < MEMLIMIT_RESERVE_LEAST)
		tenth = MEMLIMIT_RESERVE_LEAST;
	return amount_of(tenth > MEMLIMIT_RESERVE_MOST ? MEMLIMIT_RESERVE_MOST : tenth);
}

/*
 * Where workers have a slice of their own: its anonymous memory and the shared memory of both
 * slices, as a page of a tmpfs is charged to whoever touched it first.
 */
static inline struct amount memcgroup_slice(struct amount user_anon, struct amount user_shmem,
					    struct amount system_shmem)
{
	return amount_add(amount_add(user_anon, user_shmem), system_shmem);
}

#endif
