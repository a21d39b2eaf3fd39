/* SPDX-License-Identifier: Apache-2.0 */
/* memlimit.c: thresholds, in whole bytes. */
#include "memlimit.h"

#include <errno.h>

int memlimit_threshold(struct amount total, struct ratio fraction, struct amount min_free, struct amount isolated,
		       struct amount *ret)
{
	int64_t threshold;
	bool floored = min_free.known && min_free.bytes >= 0;

	if (isolated.known) {
		*ret = isolated;
		return 0;
	}
	if (ratio_compare(fraction, RATIO(1, 1)) > 0 || (floored && total.known && min_free.bytes > total.bytes))
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

bool memlimit_above(struct memlimit_use use, struct amount threshold)
{
	return use.used.known && use.total.known && threshold.known && use.used.bytes > threshold.bytes;
}

struct memlimit_use memlimit_combine(struct memlimit_use host, struct memlimit_use cgroup)
{
	if (!cgroup.total.known || (host.total.known && host.total.bytes < cgroup.total.bytes))
		return host;
	return cgroup;
}

struct memlimit_use memlimit_clamp(struct memlimit_use use)
{
	return (struct memlimit_use){.used = amount_clamp(use.used, use.total), .total = use.total};
}

bool memlimit_fills(struct memlimit_use use, struct amount grown, uint64_t grown_ns, uint64_t ahead_ns)
{
	struct amount room = amount_subtract(use.total, use.used);

	if (!room.known)
		return false;
	if (room.bytes <= 0)
		return true;
	return grown.known && grown.bytes > 0 && grown_ns > 0 &&
	       (unsigned __int128)grown.bytes * ahead_ns >= (unsigned __int128)room.bytes * grown_ns;
}

struct amount memlimit_buffer(struct amount total, struct ratio fraction, int64_t most)
{
	return total.known ? amount_least(amount_of(ratio_floor(fraction, total.bytes)), amount_of(most)) : total;
}

struct amount memlimit_reserve(struct amount total)
{
	int64_t tenth;

	if (!total.known)
		return total;
	tenth = ratio_floor(RATIO(1, 10), total.bytes);
	if (tenth < MEMLIMIT_RESERVE_LEAST)
		tenth = MEMLIMIT_RESERVE_LEAST;
	return amount_of(tenth > MEMLIMIT_RESERVE_MOST ? MEMLIMIT_RESERVE_MOST : tenth);
}

int64_t memlimit_delay_ms(int64_t attempt, int64_t base_ms, int64_t most_ms)
{
	int64_t delay = base_ms;

	if (attempt < 1 || base_ms <= 0)
		return 0;
	for (int64_t i = 1; i < attempt && delay < most_ms; i++)
		delay = amount_product(delay, 2);
	return delay < most_ms ? delay : most_ms;
}
