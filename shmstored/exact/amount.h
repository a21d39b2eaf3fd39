/* SPDX-License-Identifier: Apache-2.0 */
/*
 * amount.h: bytes that may be unknown. A file that could not be read is no empty one: an unknown amount stays unknown in every sum, and
 * each decision says what it does with it. Negative amounts occur where two files were read at two moments. Pure; all functions saturate.
 */
#ifndef AMOUNT_H
#define AMOUNT_H

#include <stdbool.h>
#include <stdint.h>

struct amount {
	bool known;
	int64_t bytes; /* 0 where it is unknown */
};

#define AMOUNT_UNKNOWN ((struct amount){.known = false})

struct amount amount_of(int64_t bytes);
/* Unknown if one of the two is. */
struct amount amount_add(struct amount a, struct amount b);
struct amount amount_subtract(struct amount a, struct amount b);
/* The smaller of those that are known. */
struct amount amount_least(struct amount a, struct amount b);
/* Clamps used to [0, total] if both are known, to 0 and more if total is not. */
struct amount amount_clamp(struct amount used, struct amount total);
bool amount_equal(struct amount a, struct amount b);

/* The sum and the product, INT64_MIN or INT64_MAX where they pass it. */
int64_t amount_sum(int64_t a, int64_t b);
int64_t amount_product(int64_t a, int64_t b);

#endif
