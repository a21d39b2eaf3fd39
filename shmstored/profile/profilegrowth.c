/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profilegrowth.c: by how much tasks of one kind grow from an age on.
 *
 * A task's peak says what it may need before anything is known of it. Once it runs, what it has says more: where all tasks of its kind had a
 * quarter of their peak or more at this age, it will have no more than four times as much. Ages are of the clock and not parts of a life, as
 * it is not known how long a task that runs will live.
 */
#include <string.h>

#include "profilekey.h"

#define UNKNOWN UINT32_MAX

static uint32_t quotient(uint64_t peak, uint64_t had)
{
	unsigned __int128 q;

	if (!had)
		return UNKNOWN;
	q = ((unsigned __int128)peak * PROFILEGROWTH_ONE + had - 1) / had;
	return q < UNKNOWN ? (uint32_t)q : UNKNOWN;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

void profilegrowth_add(struct profilegrowth *g, const struct profile_task *t)
{
	if (!t->n_ages || t->n_ages > PROFILE_AGES || !t->has[PROFILE_PRIVATE])
		return;
	if (g->n_tasks == PROFILE_RING) {
		memcpy(g->before, g->now, sizeof(g->before));
		memset(g->now, 0, sizeof(g->now));
		g->n_tasks = 0;
	}
	g->n_tasks++;
	for (unsigned i = 0; i < t->n_ages; i++) {
		g->now[i] = larger(g->now[i], quotient(t->used[PROFILE_PRIVATE], t->by_age[i]));
		g->n[i] += g->n[i] < PROFILE_GREW;
	}
}

void profilegrowth_merge(struct profilegrowth *a, const struct profilegrowth *b)
{
	for (unsigned i = 0; i < PROFILE_AGES; i++) {
		a->now[i] = larger(a->now[i], larger(b->now[i], b->before[i]));
		a->n[i] = a->n[i] + b->n[i] < PROFILE_GREW ? a->n[i] + b->n[i] : PROFILE_GREW;
	}
}

uint64_t profilegrowth_most(const struct profilegrowth *g, uint64_t age_ms, uint64_t had)
{
	unsigned __int128 most;
	uint32_t q = UNKNOWN;

	/* Older tasks have grown more: the oldest age that enough of them reached says it best. */
	for (unsigned i = 0; i < PROFILE_AGES && PROFILE_AGE(i) <= age_ms && g->n[i] >= PROFILE_GREW; i++)
		q = larger(g->now[i], g->before[i]);
	if (q == UNKNOWN || !had)
		return UINT64_MAX;
	most = ((unsigned __int128)had * q + PROFILEGROWTH_ONE - 1) / PROFILEGROWTH_ONE;
	return most < PROFILE_MOST ? (uint64_t)most : PROFILE_MOST;
}
