/* SPDX-License-Identifier: Apache-2.0 */
/* clocks.h: the time in nanoseconds. */
#ifndef CLOCKS_H
#define CLOCKS_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
