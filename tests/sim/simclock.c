/* SPDX-License-Identifier: Apache-2.0 */
#include "simclock.h"

#include <time.h>

#define BOOTED_NS UINT64_C(3600000000000)       /* ago, when a run begins */
#define DAY_NS    UINT64_C(1900000000000000000) /* the time of day then: in the year 2030 */

static uint64_t mono_ns, asleep_ns;
static int64_t set_ns;

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);

void simclock_begin(void)
{
	mono_ns = BOOTED_NS;
	asleep_ns = 0;
	set_ns = 0;
}

uint64_t simclock_now(void)
{
	return mono_ns;
}

void simclock_pass(uint64_t ns)
{
	mono_ns += ns;
}

void simclock_suspend(uint64_t ns)
{
	asleep_ns += ns;
}

void simclock_set(int64_t by_ns)
{
	set_ns += by_ns;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
	uint64_t ns = mono_ns;

	if (clock == CLOCK_BOOTTIME)
		ns += asleep_ns;
	else if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
		ns = DAY_NS + (uint64_t)((int64_t)(ns + asleep_ns) + set_ns);
	ret->tv_sec = (time_t)(ns / 1000000000u);
	ret->tv_nsec = (long)(ns % 1000000000u);
	return 0;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
	(void)left;
	mono_ns += (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec;
	return 0;
}
