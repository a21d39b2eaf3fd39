/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memlimit.h: how much of a host's memory counts, and from where on it is too much. Pure: numbers in, numbers out.
 *
 * Unknown values stay unknown: a host that cannot be read does not count as above its threshold, and nobody is killed for it.
 */
#ifndef MEMLIMIT_H
#define MEMLIMIT_H

#include <stdint.h>

#include "amount.h"
#include "ratio.h"

#define MEMLIMIT_BUFFER_MOST   (INT64_C(3) << 30)
#define MEMLIMIT_DELAY_MOST_MS 60000

/* A memory, and what of it is in use. */
struct memlimit_use {
	struct amount used, total;
};

struct memlimit_use memlimit_clamp(struct memlimit_use use);
/*
 * Is it full, or will it be within ahead_ns if it goes on as it grew within the last grown_ns (0: that is not known)? False where its use is
 * unknown.
 */
bool memlimit_fills(struct memlimit_use use, struct amount grown, uint64_t grown_ns, uint64_t ahead_ns);

/* To be freed below the threshold when something is killed: fraction of total, most at most. */
struct amount memlimit_buffer(struct amount total, struct ratio fraction, int64_t most);
/* Before attempt (from 1) of what was killed is made again: base_ms doubled with each, most_ms at most. */
int64_t memlimit_delay_ms(int64_t attempt, int64_t base_ms, int64_t most_ms);

#endif
