/* SPDX-License-Identifier: Apache-2.0 */
/* amount.c: sums of bytes that may be unknown, and fractions of bytes. */
#include "amount.h"

int64_t amount_sum(int64_t a, int64_t b)
{
	int64_t sum;

	if (!__builtin_add_overflow(a, b, &sum))
		return sum;
	return a < 0 ? INT64_MIN : INT64_MAX;
}

int64_t amount_product(int64_t a, int64_t b)
{
	int64_t product;

	if (!__builtin_mul_overflow(a, b, &product))
		return product;
	return (a < 0) != (b < 0) ? INT64_MIN : INT64_MAX;
}

struct amount amount_of(int64_t bytes)
{
	return (struct amount){.known = true, .bytes = bytes};
}

struct amount amount_add(struct amount a, struct amount b)
{
	return a.known && b.known ? amount_of(amount_sum(a.bytes, b.bytes)) : AMOUNT_UNKNOWN;
}

struct amount amount_subtract(struct amount a, struct amount b)
{
	int64_t difference;

	if (!a.known || !b.known)
		return AMOUNT_UNKNOWN;
	if (__builtin_sub_overflow(a.bytes, b.bytes, &difference))
		difference = a.bytes < 0 ? INT64_MIN : INT64_MAX;
	return amount_of(difference);
}

bool amount_equal(struct amount a, struct amount b)
{
	return a.known == b.known && (!a.known || a.bytes == b.bytes);
}

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
