/* SPDX-License-Identifier: Apache-2.0 */
/* profilering.c: the last values of something. They are asked for their ranks more often than they change, so that they are kept sorted. */
#include <string.h>

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
