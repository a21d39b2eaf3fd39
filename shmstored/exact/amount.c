/* SPDX-License-Identifier: Apache-2.0 */
/* amount.c: sums of bytes that may be unknown. */
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

struct amount amount_least(struct amount a, struct amount b)
{
	if (!a.known || !b.known)
		return a.known ? a : b;
	return a.bytes <= b.bytes ? a : b;
}

struct amount amount_clamp(struct amount used, struct amount total)
{
	if (!used.known)
		return used;
	if (used.bytes < 0)
		return amount_of(0);
	return total.known && used.bytes > total.bytes ? total : used;
}

bool amount_equal(struct amount a, struct amount b)
{
	return a.known == b.known && (!a.known || a.bytes == b.bytes);
}
