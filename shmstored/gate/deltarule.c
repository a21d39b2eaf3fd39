/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deltarule.c: rounds delta up and the interval down, so that rounding leaves more room and adds no
 * risk.
 */
#include "deltarule.h"

#include <errno.h>

typedef unsigned __int128 wide;

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

int deltarule_compute(int64_t total, int64_t rate, int64_t interval_ms, struct deltarule *ret)
{
	struct deltarule r = {0};
	wide delta, longest;

	if (total <= 0 || interval_ms <= 0 || rate < 0)
		return -EINVAL;
	/* In millionths: rate * interval_ms / 1000 / total * 1000000. */
	delta = (wide)(uint64_t)rate * (uint64_t)interval_ms;
	/* A product over 2^116 is over any total's quarter by far. */
	delta = delta >> 116 ? (wide)1 << 100 : (delta * 1000 + (uint64_t)total - 1) / (uint64_t)total;
	r.max_interval_ms = INT64_MAX;
	if (rate) {
		longest = (wide)(uint64_t)total * 1000 * DELTARULE_MOST_PPM / 1000000 / (uint64_t)rate;
		r.max_interval_ms = longest > INT64_MAX ? INT64_MAX : (int64_t)longest;
	}
	if (delta > DELTARULE_MOST_PPM) {
		*ret = (struct deltarule){.max_interval_ms = r.max_interval_ms};
		return -ERANGE;
	}
	r.delta_ppm = (int64_t)delta;
	r.kill_ppm = least(DELTARULE_KILL_PPM, 1000000 - r.delta_ppm);
	r.gate_ppm = least(r.kill_ppm - DELTARULE_GATE_PPM, 1000000 - 2 * r.delta_ppm);
	*ret = r;
	return 0;
}
