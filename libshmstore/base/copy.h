/* SPDX-License-Identifier: Apache-2.0 */
/* copy.h: copies of an object's buffers into memory that is there already. */
#ifndef SHMS_COPY_H
#define SHMS_COPY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* memcpy(3); a large copy to an address that is a multiple of 64 goes the fastest way that this
 * processor has. Any number of threads. */
void shms_copy(void *to, const void *from, size_t size);

/*
 * The race of several ways to copy, for the fastest on this machine, is run by copies that are
 * made anyway. Pure: the caller takes the times.
 *
 * A race has heats. In a heat some ways take turns of three copies: a way leaves its destination in
 * the caches or out of them, so the first copy of a turn pays for the way before it. Once each way
 * had a turn, one whose best copy is slower by more than a quarter leaves; when one is left, or
 * each had two turns, the lowest median wins. All ways run in the first heat, the winner and one
 * other in each later one, and between two heats every copy goes the winner's way: 128 copies at
 * first, twice as many each time that the winner stays. So a way that is three times as slow costs
 * 5 % at first and 0.1 % at last.
 */

#define SHMS_COPYRACE_WAYS 3u
#define SHMS_COPYRACE_TURN 3u
#define SHMS_COPYRACE_RUNS (2 * SHMS_COPYRACE_TURN)

/* All zero before the first heat. */
struct shms_copyrace {
	_Atomic uint32_t pause; /* copies until the next heat */
	_Atomic uint32_t best;  /* the way of all copies that are in no heat */
	/* one thread runs, and owns all that follows; a child forked meanwhile keeps the best */
	atomic_bool running;
	uint32_t rest; /* the pause after the last heat, 0 before the first has ended */
	uint32_t last; /* the way that last ran against the best */
	uint32_t in;   /* ways in this heat, as bits; 0: none has begun */
	uint32_t n_runs[SHMS_COPYRACE_WAYS];
	uint64_t times[SHMS_COPYRACE_WAYS][SHMS_COPYRACE_RUNS];
};

/*
 * The way of the next copy. *ret_timed: it runs in a heat, so the same thread must tell its time by
 * shms_copyrace_ran(). Any number of threads.
 */
uint32_t shms_copyrace_way(struct shms_copyrace *r, bool *ret_timed);
/* The copy by that way took so long, in any unit, as if all copies were of one size. */
void shms_copyrace_ran(struct shms_copyrace *r, uint32_t way, uint64_t time);

#endif
