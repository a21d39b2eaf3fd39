/* SPDX-License-Identifier: Apache-2.0 */
/*
 * twister.h: the random numbers of Python's random.Random(seed), number for number, so that
 * situations made there and here are the same ones.
 */
#ifndef SIM_TWISTER_H
#define SIM_TWISTER_H

#include <stdint.h>

#define TWISTER_WORDS 624u

struct twister {
	uint32_t words[TWISTER_WORDS];
	unsigned at; /* next word; TWISTER_WORDS = make new ones */
};

/* Random(seed) */
void twister_init(struct twister *t, uint32_t seed);
/* .random(): 0 <= x < 1 */
double twister_real(struct twister *t);
/* .randrange(n): 0 <= x < n; n is not 0 */
uint64_t twister_below(struct twister *t, uint64_t n);

#endif
