/* SPDX-License-Identifier: Apache-2.0 */
/* copyrace.c: see copyrace.h. */
#include "copyrace.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_REST 128u
#define LONGEST    4096u
#define RUNS_FIRST 2u /* after so many runs of each way, those that are far behind leave */

static uint32_t least_run(const struct shms_copyrace *r)
{
	uint32_t way = SHMS_COPYRACE_WAYS;

	for (uint32_t i = 0; i < SHMS_COPYRACE_WAYS; i++)
		if ((r->in & 1u << i) && (way == SHMS_COPYRACE_WAYS || r->n_runs[i] < r->n_runs[way]))
			way = i;
	assert(way < SHMS_COPYRACE_WAYS);
	return way;
}

static void begin_heat(struct shms_copyrace *r, uint32_t n_ways)
{
	uint32_t best = atomic_load_explicit(&r->best, memory_order_relaxed);

	memset(r->n_runs, 0, sizeof(r->n_runs));
	r->in = (1u << n_ways) - 1;
	if (!r->known)
		return;
	do
		r->last = (r->last + 1) % n_ways;
	while (r->last == best);
	r->in = 1u << best | 1u << r->last;
}

uint32_t shms_copyrace_way(struct shms_copyrace *r, uint32_t n_ways, bool *ret_timed)
{
	uint32_t pause = atomic_load_explicit(&r->pause, memory_order_relaxed);

	*ret_timed = false;
	if (pause)
		atomic_store_explicit(&r->pause, pause - 1,
				      memory_order_relaxed); /* other threads' steps may be lost */
	else
		*ret_timed = !atomic_exchange_explicit(&r->running, true, memory_order_acquire); /* of run_ended() */
	if (!*ret_timed)
		return atomic_load_explicit(&r->best, memory_order_relaxed);
	if (!r->in)
		begin_heat(r, n_ways);
	return least_run(r);
}

static int by_time(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The way of the lowest time at that place of its sorted times. */
static uint32_t lowest(const struct shms_copyrace *r, uint32_t place)
{
	uint32_t best = least_run(r);

	for (uint32_t i = 0; i < SHMS_COPYRACE_WAYS; i++)
		if ((r->in & 1u << i) && r->times[i][place] < r->times[best][place])
			best = i;
	return best;
}

/* Whether the heat has a winner: then only that way is in. */
static bool decide(struct shms_copyrace *r)
{
	uint32_t runs = r->n_runs[least_run(r)], best;

	if (runs < RUNS_FIRST)
		return false;
	best = lowest(r, 0);
	for (uint32_t i = 0; i < SHMS_COPYRACE_WAYS; i++)
		if (r->times[i][0] - r->times[best][0] > r->times[best][0] / 4)
			r->in &= ~(1u << i);
	if (runs == SHMS_COPYRACE_RUNS)
		r->in = 1u << lowest(r, SHMS_COPYRACE_RUNS / 2);
	return (r->in & (r->in - 1)) == 0;
}

static void end_heat(struct shms_copyrace *r)
{
	uint32_t winner = least_run(r);
	bool stays = r->known && winner == atomic_load_explicit(&r->best, memory_order_relaxed);

	r->rest = !stays ? FIRST_REST : r->rest < LONGEST ? 2 * r->rest : LONGEST;
	r->known = true;
	r->in = 0;
	atomic_store_explicit(&r->best, winner, memory_order_relaxed);
	atomic_store_explicit(&r->pause, r->rest, memory_order_relaxed);
}

void shms_copyrace_ran(struct shms_copyrace *r, uint32_t way, uint64_t time)
{
	assert(way < SHMS_COPYRACE_WAYS && (r->in & 1u << way) && r->n_runs[way] < SHMS_COPYRACE_RUNS);
	r->times[way][r->n_runs[way]++] = time;
	qsort(r->times[way], r->n_runs[way], sizeof(r->times[way][0]), by_time);
	if (decide(r))
		end_heat(r);
	atomic_store_explicit(&r->running, false, memory_order_release); /* for shms_copyrace_way()'s exchange */
}
