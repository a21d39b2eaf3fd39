/* SPDX-License-Identifier: Apache-2.0 */
/* copyrace.c: see copyrace.h. */
#include "copyrace.h"

#include <assert.h>
#include <string.h>

#define FIRST_REST 128u
#define LONGEST    4096u

/* The way whose turn has not ended, else that which has run least. */
static uint32_t next_way(const struct shms_copyrace *r)
{
	uint32_t way = SHMS_COPYRACE_WAYS;

	for (uint32_t i = 0; i < SHMS_COPYRACE_WAYS; i++) {
		if (r->in & 1u << i && r->n_runs[i] % SHMS_COPYRACE_TURN)
			return i;
		if (r->in & 1u << i && (way == SHMS_COPYRACE_WAYS || r->n_runs[i] < r->n_runs[way]))
			way = i;
	}
	assert(way < SHMS_COPYRACE_WAYS);
	return way;
}

static void begin_heat(struct shms_copyrace *r)
{
	uint32_t best = atomic_load_explicit(&r->best, memory_order_relaxed);

	memset(r->n_runs, 0, sizeof(r->n_runs));
	r->in = (1u << SHMS_COPYRACE_WAYS) - 1;
	if (!r->rest)
		return;
	do
		r->last = (r->last + 1) % SHMS_COPYRACE_WAYS;
	while (r->last == best);
	r->in = 1u << best | 1u << r->last;
}

uint32_t shms_copyrace_way(struct shms_copyrace *r, bool *ret_timed)
{
	uint32_t pause = atomic_load_explicit(&r->pause, memory_order_relaxed);

	*ret_timed = false;
	if (pause) /* other threads' steps may be lost */
		atomic_store_explicit(&r->pause, pause - 1, memory_order_relaxed);
	else
		/* of run_ended() */
		*ret_timed = !atomic_exchange_explicit(&r->running, true, memory_order_acquire);
	if (!*ret_timed)
		return atomic_load_explicit(&r->best, memory_order_relaxed);
	if (!r->in)
		begin_heat(r);
	return next_way(r);
}

/* The way of the lowest time at that place of its sorted times. */
static uint32_t lowest(const struct shms_copyrace *r, uint32_t place)
{
	uint32_t best = next_way(r);

	for (uint32_t i = 0; i < SHMS_COPYRACE_WAYS; i++)
		if ((r->in & 1u << i) && r->times[i][place] < r->times[best][place])
			best = i;
	return best;
}

/* Whether the heat has a winner: then only that way is in. */
static bool decide(struct shms_copyrace *r)
{
	uint32_t runs = r->n_runs[next_way(r)], best;

	if (!runs || runs % SHMS_COPYRACE_TURN)
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
	uint32_t winner = next_way(r);
	bool stays = r->rest && winner == atomic_load_explicit(&r->best, memory_order_relaxed);

	r->rest = !stays ? FIRST_REST : r->rest < LONGEST ? 2 * r->rest : LONGEST;
	r->in = 0;
	atomic_store_explicit(&r->best, winner, memory_order_relaxed);
	atomic_store_explicit(&r->pause, r->rest, memory_order_relaxed);
}

void shms_copyrace_ran(struct shms_copyrace *r, uint32_t way, uint64_t time)
{
	uint32_t k;

	assert(way < SHMS_COPYRACE_WAYS && (r->in & 1u << way) &&
	       r->n_runs[way] < SHMS_COPYRACE_RUNS);
	for (k = r->n_runs[way]++; k && r->times[way][k - 1] > time; k--)
		r->times[way][k] = r->times[way][k - 1];
	r->times[way][k] = time;
	if (decide(r))
		end_heat(r);
	/* for shms_copyrace_way()'s exchange */
	atomic_store_explicit(&r->running, false, memory_order_release);
}
