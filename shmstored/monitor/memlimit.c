/* SPDX-License-Identifier: Apache-2.0 */
/* memlimit.c: in whole bytes. */
#include "memlimit.h"

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

int64_t memlimit_delay_ms(int64_t attempt, int64_t base_ms, int64_t most_ms)
{
	int64_t delay = base_ms;

	if (attempt < 1 || base_ms <= 0)
		return 0;
	for (int64_t i = 1; i < attempt && delay < most_ms; i++)
		delay = amount_product(delay, 2);
	return delay < most_ms ? delay : most_ms;
}
