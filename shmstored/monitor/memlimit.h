/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memlimit.h: how much of a host's memory counts, and from where on it is too much. Pure: numbers in, numbers out.
 *
 * What is unknown stays unknown: of a host that cannot be read it is not known that it is above its threshold, and nobody is killed for it.
 */
#ifndef MEMLIMIT_H
#define MEMLIMIT_H

#include <stdint.h>

#include "amount.h"
#include "ratio.h"

#define MEMLIMIT_BUFFER_MOST   (INT64_C(3) << 30)
#define MEMLIMIT_RESERVE_LEAST (INT64_C(500) << 20)
#define MEMLIMIT_RESERVE_MOST  (INT64_C(10) << 30)
#define MEMLIMIT_DELAY_MOST_MS 60000

/* A memory, and what of it is in use. */
struct memlimit_use {
	struct amount used, total;
};

/*
 * The bytes above which a memory of total is too full: fraction of it, and never fewer than leave min_free. min_free unknown or negative: only the fraction counts.
 * isolated: what the workers' own cgroup may use; where it is known, it is the threshold.
 * Return: 0, *ret unknown if total is; -EINVAL: fraction is more than 1, or min_free more than total.
 */
int memlimit_threshold(struct amount total, struct ratio fraction, struct amount min_free, struct amount isolated,
		       struct amount *ret);
/* used > threshold; false if used, total or threshold is unknown. */
bool memlimit_above(struct memlimit_use use, struct amount threshold);
/* The smaller of two memories, with its own use: the cgroup's if it is not larger than the host. */
struct memlimit_use memlimit_combine(struct memlimit_use host, struct memlimit_use cgroup);
struct memlimit_use memlimit_clamp(struct memlimit_use use);
/*
 * Is it full, or will it be within ahead_ns if it goes on as it grew within the last grown_ns (0: that is not known)? False where its use is
 * unknown.
 */
bool memlimit_fills(struct memlimit_use use, struct amount grown, uint64_t grown_ns, uint64_t ahead_ns);

/* To be freed below the threshold when something is killed: fraction of total, most at most. */
struct amount memlimit_buffer(struct amount total, struct ratio fraction, int64_t most);
/* What the system keeps for itself: a tenth of total, within the bounds above. */
struct amount memlimit_reserve(struct amount total);
/* Before attempt (from 1) of what was killed is made again: base_ms doubled with each, most_ms at most. */
int64_t memlimit_delay_ms(int64_t attempt, int64_t base_ms, int64_t most_ms);

#endif
