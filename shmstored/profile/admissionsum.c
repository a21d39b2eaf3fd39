/* SPDX-License-Identifier: Apache-2.0 */
/* admissionsum.c: convolution, one task at a time: as many steps as there are quanta times different values. */
#include "admissionsum.h"

#include <string.h>

#define ONE     (UINT64_C(1) << 62)
#define MILLION 1000000u
#define BEYOND  (ADMISSIONSUM_QUANTA + 1) /* more than any cap */

void admissionsum_init(struct admissionsum *s, uint64_t cap)
{
	uint64_t quantum = cap / ADMISSIONSUM_QUANTA + (cap % ADMISSIONSUM_QUANTA != 0);

	*s = (struct admissionsum){.quantum = quantum ? quantum : 1};
	s->cap = cap / s->quantum;
	s->p[0] = ONE;
}

static uint64_t times(uint64_t a, uint64_t b)
{
	return (uint64_t)((unsigned __int128)a * b >> 62);
}

static uint64_t quanta(const struct admissionsum *s, uint64_t bytes)
{
	uint64_t n = bytes / s->quantum + (bytes % s->quantum != 0);

	return n > s->cap ? BEYOND : n;
}

/* How many of the values that are not above most are so many quanta. Returns how many these are. */
static size_t count(const struct admissionsum *s, const uint64_t *values, size_t n, uint64_t least, uint64_t most,
		    uint32_t counts[BEYOND + 1])
{
	size_t within = 0;

	memset(counts, 0, (BEYOND + 1) * sizeof(counts[0]));
	for (size_t i = 0; i < n; i++) {
		if (values[i] > most)
			continue;
		counts[quanta(s, values[i] > least ? values[i] : least)]++;
		within++;
	}
	if (within)
		return within;
	counts[quanta(s, most > least ? most : least)] = 1;
	return 1;
}

static uint64_t weight(uint32_t n, size_t of)
{
	return (uint64_t)((unsigned __int128)n * ONE / of);
}

void admissionsum_add(struct admissionsum *s, const uint64_t *values, size_t n, uint64_t least, uint64_t most)
{
	uint64_t p[ADMISSIONSUM_QUANTA + 1] = {0}, over = s->over;
	uint32_t counts[BEYOND + 1];

	n = count(s, values, n, least, most, counts);
	for (uint64_t more = 0; more <= BEYOND; more++) {
		uint64_t w = counts[more] ? weight(counts[more], n) : 0;

		for (uint64_t i = 0; w && i <= s->cap; i++) {
			if (i + more <= s->cap)
				p[i + more] += times(s->p[i], w);
			else
				over += times(s->p[i], w);
		}
	}
	memcpy(s->p, p, sizeof(p));
	s->over = over;
}

uint64_t admissionsum_over(const struct admissionsum *s, const uint64_t *values, size_t n)
{
	uint64_t over = s->over, tail = 0;
	uint32_t counts[BEYOND + 1];

	n = count(s, values, n, 0, UINT64_MAX, counts);
	/* tail: P(the others have so much that this one is too much) */
	for (uint64_t more = 0; more <= BEYOND; more++) {
		if (more && more <= s->cap + 1)
			tail += s->p[s->cap + 1 - more];
		if (counts[more])
			over += times(tail, weight(counts[more], n));
	}
	return over;
}

uint64_t admissionsum_share(uint32_t ppm)
{
	return (uint64_t)((unsigned __int128)ppm * ONE / MILLION);
}
