/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simclock.h: the clocks that the daemon and the library read, in virtual time: clock_gettime() of
 * the program comes here (-Wl,--wrap). Time passes only where the simulation lets it pass, and in
 * nanosleep().
 */
#ifndef SIM_SIMCLOCK_H
#define SIM_SIMCLOCK_H

#include <stdint.h>

/* All clocks begin anew. */
void simclock_begin(void);
uint64_t simclock_now(void); /* CLOCK_MONOTONIC, in ns */
void simclock_pass(uint64_t ns);
/* The host sleeps: CLOCK_MONOTONIC stands still meanwhile. */
void simclock_suspend(uint64_t ns);
/* Somebody sets the time of day. */
void simclock_set(int64_t by_ns);

#endif
