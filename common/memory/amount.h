/* SPDX-License-Identifier: Apache-2.0 */
/*
 * amount.h: bytes that may be unknown. A file that could not be read is no empty one: an unknown
 * amount stays unknown in every sum, and each decision says what it does with it. Negative amounts
 * occur where two files were read at two moments. Pure; all functions saturate.
 */
#ifndef AMOUNT_H
#define AMOUNT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct amount {
	bool known;
	int64_t bytes; /* 0 where it is unknown */
};

#define AMOUNT_UNKNOWN ((struct amount){.known = false})

struct amount amount_of(int64_t bytes);
/* Unknown if one of the two is. */
struct amount amount_add(struct amount a, struct amount b);
struct amount amount_subtract(struct amount a, struct amount b);
bool amount_equal(struct amount a, struct amount b);

/* The sum and the product, INT64_MIN or INT64_MAX where they pass it. */
int64_t amount_sum(int64_t a, int64_t b);
int64_t amount_product(int64_t a, int64_t b);

/*
 * Fractions that are exact. 0.95 has no binary representation, so that a share of many bytes
 * reckoned with floats is off by some; here it is 95/100, and what is rounded, is rounded once and
 * in a direction that the function's name says.
 */
struct ratio {
	uint64_t num, den; /* den > 0 */
};

#define RATIO(n, d)  ((struct ratio){.num = (n), .den = (d)})
#define RATIO_PPM(n) RATIO(n, 1000000)

/* "0.95", "1", "3.": digits, and at most 18 of them behind the point. false: it is
 * none, or it does not fit. */
bool ratio_parse(const char *text, struct ratio *ret);
/* <0, 0, >0 */
int ratio_compare(struct ratio a, struct ratio b);
/* This share of amount, which is not negative: rounded down or up; INT64_MAX where it is more. */
int64_t ratio_floor(struct ratio r, int64_t amount);
int64_t ratio_ceil(struct ratio r, int64_t amount);

/* Bytes as people read them: "512 bytes", "40.0 MiB". */
struct sizetext {
	char text[32];
};

static inline struct sizetext sizetext(uint64_t bytes)
{
	static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes;
	struct sizetext s;
	size_t i = 0;

	for (; value >= 1024; i++)
		value /= 1024;
	snprintf(s.text, sizeof(s.text), i ? "%.1f %s" : "%.0f %s", value, units[i]);
	return s;
}

#endif
