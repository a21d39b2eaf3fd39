/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admissionsum.h: the distribution of what several tasks will use together, in quanta of a 256th of a cap. Private to the room.
 *
 * A probability is a number of 62 binary places. All products are rounded down, and so is a share once: what is 0.028 exactly is never above
 * the share 0.028. A distribution lacks less than 10^-12 by that.
 */
#ifndef ADMISSIONSUM_H
#define ADMISSIONSUM_H

#include <stddef.h>
#include <stdint.h>

#define ADMISSIONSUM_QUANTA 256u

struct admissionsum {
	uint64_t quantum, cap; /* cap: whole quanta */
	uint64_t over;         /* P(more than the cap) */
	uint64_t p[ADMISSIONSUM_QUANTA + 1];
};

void admissionsum_init(struct admissionsum *s, uint64_t cap);
/*
 * One more task: each of its n values as likely as the others, but at least `least`, and without those above `most`: where all are above,
 * it is that. n is 1 to 2^32.
 */
void admissionsum_add(struct admissionsum *s, const uint64_t *values, size_t n, uint64_t least, uint64_t most);
/* P(more than the cap) with one more task. */
uint64_t admissionsum_over(const struct admissionsum *s, const uint64_t *values, size_t n);
/* A share in millionths as such a number. */
uint64_t admissionsum_share(uint32_t ppm);

#endif
