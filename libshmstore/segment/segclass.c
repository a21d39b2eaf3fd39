/* SPDX-License-Identifier: Apache-2.0 */
/* segclass.c: from a size to its class. */
#include "segclass.h"

#define LINEAR     SHMS_SEGCLASS_LINEAR
#define LINEAR_MAX ((uint64_t)LINEAR * SHMS_SEGCLASS_ALIGN)
#define STEPS      SHMS_SEGCLASS_STEPS

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
