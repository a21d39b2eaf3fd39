/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segclass.c: the arithmetic of classes. Classes 0 to 31 have 64 (c + 1) bytes; class 32 + 16 d + i
 * has 2048 * 2^d * (17 + i) / 16.
 */
#include "segclass.h"

#define LINEAR     32u
#define LINEAR_MAX ((uint64_t)LINEAR * SHMS_SEGCLASS_ALIGN)
#define STEPS      16u

uint64_t shms_segclass_size(uint8_t class)
{
	unsigned step = class - LINEAR;

	if (class < LINEAR)
		return (class + 1ul) * SHMS_SEGCLASS_ALIGN;
	return LINEAR_MAX / STEPS * (STEPS + 1 + step % STEPS) << step / STEPS;
}

int shms_segclass_for(uint64_t size)
{
	unsigned doublings;
	uint64_t unit;

	if (size == 0 || size > SHMS_SEGCLASS_MAX)
		return -1;
	if (size <= LINEAR_MAX)
		return (int)((size - 1) / SHMS_SEGCLASS_ALIGN);
	/* size - 1 lies in [2048 * 2^d, 2048 * 2^(d + 1)). */
	doublings = 63u - 11u - (unsigned)__builtin_clzll(size - 1);
	unit = LINEAR_MAX / STEPS << doublings;
	return (int)(LINEAR + doublings * STEPS + (unsigned)((size - 1) / unit - STEPS));
}
