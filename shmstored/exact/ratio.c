/* SPDX-License-Identifier: Apache-2.0 */
/* ratio.c: products of 64 bits need 128. */
#include "ratio.h"

#define PLACES_MAX 18u

typedef unsigned __int128 wide;

bool ratio_parse(const char *text, struct ratio *ret)
{
	struct ratio r = {.den = 1};
	unsigned n_digits = 0, n_places = 0;
	bool point = false;

	for (const char *c = text; *c; c++) {
		if (*c == '.' && !point) {
			point = true;
			continue;
		}
		if (*c < '0' || *c > '9' || (point && ++n_places > PLACES_MAX))
			return false;
		if (__builtin_mul_overflow(r.num, 10, &r.num) ||
		    __builtin_add_overflow(r.num, (uint64_t)(*c - '0'), &r.num))
			return false;
		if (point)
			r.den *= 10;
		n_digits++;
	}
	if (!n_digits)
		return false;
	*ret = r;
	return true;
}

int ratio_compare(struct ratio a, struct ratio b)
{
	wide left = (wide)a.num * b.den, right = (wide)b.num * a.den;

	return (left > right) - (left < right);
}

static int64_t narrow(wide n)
{
	return n > INT64_MAX ? INT64_MAX : (int64_t)n;
}

int64_t ratio_floor(struct ratio r, int64_t amount)
{
	return amount <= 0 ? 0 : narrow((wide)r.num * (uint64_t)amount / r.den);
}

int64_t ratio_ceil(struct ratio r, int64_t amount)
{
	wide product;

	if (amount <= 0)
		return 0;
	product = (wide)r.num * (uint64_t)amount;
	return narrow(product / r.den + (product % r.den != 0));
}

int64_t ratio_ppm(struct ratio r)
{
	return ratio_floor(r, 1000000);
}
