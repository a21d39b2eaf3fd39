/* SPDX-License-Identifier: Apache-2.0 */
/*
 * twister.c: MT19937 as published by Matsumoto and Nishimura (2002), seeded by an array
 * of one word, and the two ways in which Python makes numbers of its words.
 * Single-threaded; the state is the caller's.
 */
#include "twister.h"

#define MIDDLE 397u

void twister_init(struct twister *t, uint32_t seed)
{
	uint32_t *w = t->words;
	unsigned i = 1;

	w[0] = 19650218u;
	for (unsigned k = 1; k < TWISTER_WORDS; k++)
		w[k] = 1812433253u * (w[k - 1] ^ (w[k - 1] >> 30)) + k;
	for (unsigned k = 0; k < TWISTER_WORDS; k++) {
		w[i] = (w[i] ^ ((w[i - 1] ^ (w[i - 1] >> 30)) * 1664525u)) + seed;
		if (++i == TWISTER_WORDS) {
			w[0] = w[TWISTER_WORDS - 1];
			i = 1;
		}
	}
	for (unsigned k = 0; k < TWISTER_WORDS - 1; k++) {
		w[i] = (w[i] ^ ((w[i - 1] ^ (w[i - 1] >> 30)) * 1566083941u)) - i;
		if (++i == TWISTER_WORDS) {
			w[0] = w[TWISTER_WORDS - 1];
			i = 1;
		}
	}
	w[0] = 0x80000000u;
	t->at = TWISTER_WORDS;
}

static void twist(struct twister *t)
{
	uint32_t *w = t->words;

	for (unsigned k = 0; k < TWISTER_WORDS; k++) {
		uint32_t y = (w[k] & 0x80000000u) | (w[(k + 1) % TWISTER_WORDS] & 0x7fffffffu);

		w[k] = w[(k + MIDDLE) % TWISTER_WORDS] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
	}
	t->at = 0;
}

static uint32_t word(struct twister *t)
{
	uint32_t y;

	if (t->at == TWISTER_WORDS)
		twist(t);
	y = t->words[t->at++];
	y ^= y >> 11;
	y ^= (y << 7) & 0x9d2c5680u;
	y ^= (y << 15) & 0xefc60000u;
	return y ^ (y >> 18);
}

double twister_real(struct twister *t)
{
	uint32_t high = word(t) >> 5, low = word(t) >> 6;

	return (high * 67108864.0 + low) / 9007199254740992.0;
}

/* n bits, 1 to 64: the first word holds the low ones. */
static uint64_t bits(struct twister *t, unsigned n)
{
	uint64_t low;

	if (n <= 32)
		return word(t) >> (32 - n);
	low = word(t);
	return low | (uint64_t)(word(t) >> (64 - n)) << 32;
}

uint64_t twister_below(struct twister *t, uint64_t n)
{
	unsigned n_bits = 64u - (unsigned)__builtin_clzll(n);
	uint64_t x;

	do
		x = bits(t, n_bits);
	while (x >= n);
	return x;
}
