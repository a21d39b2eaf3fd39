/* SPDX-License-Identifier: Apache-2.0 */
/* profilering.c: the last values of something. They are asked for their ranks more often than they
 * change, so that they are kept sorted. */
#include <string.h>
#include <sys/param.h>

#include "profilekey.h"

/* The first of the sorted values that is not below value. */
static uint32_t place_of(const struct profilering *ring, uint64_t value)
{
	uint32_t low = 0, high = ring->n;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (ring->sorted[middle] < value)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void leave(struct profilering *ring)
{
	uint32_t i = place_of(ring, ring->values[ring->from]);

	ring->n--;
	ring->from = (ring->from + 1) % PROFILE_RING;
	memmove(&ring->sorted[i], &ring->sorted[i + 1], (ring->n - i) * sizeof(ring->sorted[0]));
}

void profilering_add(struct profilering *ring, uint64_t value)
{
	uint32_t i;

	if (ring->n == PROFILE_RING)
		leave(ring);
	i = place_of(ring, value);
	memmove(&ring->sorted[i + 1], &ring->sorted[i], (ring->n - i) * sizeof(ring->sorted[0]));
	ring->sorted[i] = value;
	ring->values[(ring->from + ring->n) % PROFILE_RING] = value;
	ring->n++;
}

uint64_t profilering_at(const struct profilering *ring, uint32_t i)
{
	return ring->values[(ring->from + i) % PROFILE_RING];
}

void profilering_keep(struct profilering *ring, uint32_t n)
{
	while (ring->n > n)
		leave(ring);
}

uint64_t profilering_rank(const struct profilering *ring, uint32_t num, uint32_t den)
{
	uint32_t rank = (ring->n * num + den - 1) / den;

	return ring->n ? ring->sorted[rank ? rank - 1 : 0] : 0;
}

uint64_t profilering_max(const struct profilering *ring)
{
	return ring->n ? ring->sorted[ring->n - 1] : 0;
}

void profilering_interleave(struct profilering *a, const struct profilering *b)
{
	struct profilering both = {0};
	uint32_t most = a->n > b->n ? a->n : b->n;

	/* Aligned at the newest: the longer one's oldest come first. */
	for (uint32_t back = most; back > 0; back--) {
		if (back <= a->n)
			profilering_add(&both, profilering_at(a, a->n - back));
		if (back <= b->n)
			profilering_add(&both, profilering_at(b, b->n - back));
	}
	*a = both;
}

/*
 * By how much tasks of one kind grow from an age on.
 *
 * A task's peak says what it may need before anything is known of it. Once it runs, what it has
 * says more: where all tasks of its kind had a quarter of their peak or more at this age, it will
 * have no more than four times as much. Ages are of the clock and not parts of a life, as it is not
 * known how long a task that runs will live.
 */
#define UNKNOWN UINT32_MAX

static uint32_t quotient(uint64_t peak, uint64_t had)
{
	unsigned __int128 q;

	if (!had)
		return UNKNOWN;
	q = ((unsigned __int128)peak * PROFILEGROWTH_ONE + had - 1) / had;
	return q < UNKNOWN ? (uint32_t)q : UNKNOWN;
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
		g->now[i] = MAX(g->now[i], quotient(t->used[PROFILE_PRIVATE], t->by_age[i]));
		g->n[i] += g->n[i] < PROFILE_GREW;
	}
}

void profilegrowth_merge(struct profilegrowth *a, const struct profilegrowth *b)
{
	for (unsigned i = 0; i < PROFILE_AGES; i++) {
		a->now[i] = MAX(a->now[i], MAX(b->now[i], b->before[i]));
		a->n[i] = a->n[i] + b->n[i] < PROFILE_GREW ? a->n[i] + b->n[i] : PROFILE_GREW;
	}
}

uint64_t profilegrowth_most(const struct profilegrowth *g, uint64_t age_ms, uint64_t had)
{
	unsigned __int128 most;
	uint32_t q = UNKNOWN;

	/* Older tasks have grown more: the oldest age that enough of them reached says it best. */
	for (unsigned i = 0;
	     i < PROFILE_AGES && PROFILE_AGE(i) <= age_ms && g->n[i] >= PROFILE_GREW; i++)
		q = MAX(g->now[i], g->before[i]);
	if (q == UNKNOWN || !had)
		return UINT64_MAX;
	most = ((unsigned __int128)had * q + PROFILEGROWTH_ONE - 1) / PROFILEGROWTH_ONE;
	return most < PROFILE_MOST ? (uint64_t)most : PROFILE_MOST;
}
