/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ratio.h: fractions that are exact. 0.95 has no binary representation, so that a share of many bytes reckoned with floats is off by some; here
 * it is 95/100, and what is rounded, is rounded once and in a direction that the function's name says. Pure.
 */
#ifndef RATIO_H
#define RATIO_H

#include <stdbool.h>
#include <stdint.h>

struct ratio {
	uint64_t num, den; /* den > 0 */
};

#define RATIO(n, d)  ((struct ratio){.num = (n), .den = (d)})
#define RATIO_PPM(n) RATIO(n, 1000000)

/* "0.95", "1", "3.": digits, and at most 18 of them behind the point. false: it is none, or it does not fit. */
bool ratio_parse(const char *text, struct ratio *ret);
/* <0, 0, >0 */
int ratio_compare(struct ratio a, struct ratio b);
/* This share of amount, which is not negative: rounded down or up; INT64_MAX where it is more. */
int64_t ratio_floor(struct ratio r, int64_t amount);
int64_t ratio_ceil(struct ratio r, int64_t amount);
/* In millionths. */
int64_t ratio_ppm(struct ratio r);

#endif
