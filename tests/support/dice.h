/* SPDX-License-Identifier: Apache-2.0 */
/* dice.h: random numbers of a seed, the same everywhere: SplitMix64. */
#ifndef DICE_H
#define DICE_H

#include <stdint.h>
#include <stdlib.h>

struct dice {
	uint64_t state;
};

static inline uint64_t dice_bits(struct dice *d)
{
	uint64_t z = d->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* 0 to n - 1 */
static inline uint64_t dice_draw(struct dice *d, uint64_t n)
{
	return dice_bits(d) % n;
}

/* Histories from first on, as many as otherwise; of $SHMSTORE_SEED that one only. */
static inline uint64_t dice_seeds(uint64_t otherwise, uint64_t *ret_first)
{
	const char *text = getenv("SHMSTORE_SEED");

	*ret_first = text ? strtoull(text, NULL, 10) : 1;
	return text ? 1 : otherwise;
}

#endif
