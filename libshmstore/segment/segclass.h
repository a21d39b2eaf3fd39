/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segclass.h: the sizes of extents: multiples of 64 bytes up to 2 KiB; above, 16 sizes for each
 * doubling, up to 32 MiB, so that at most a sixteenth is lost. An extent keeps its class and its
 * slot for ever. Pure.
 */
#ifndef SHMS_SEGCLASS_H
#define SHMS_SEGCLASS_H

#include <stdint.h>

#define SHMS_SEGCLASSES     256u
#define SHMS_SEGCLASS_ALIGN 64u
#define SHMS_SEGCLASS_MAX   (UINT64_C(32) << 20) /* the largest extent */
/* extents of so many bytes begin at a page, and are whole pages */
#define SHMS_SEGCLASS_BIG   65536u

/* classes 0 to 31 have 64 (c + 1) bytes; class 32 + 16 d + i has 2048 * 2^d * (17 + i) / 16 */
#define SHMS_SEGCLASS_LINEAR 32u
#define SHMS_SEGCLASS_STEPS  16u

/* Bytes of an extent of that class. */
static inline uint64_t shms_segclass_size(uint8_t class)
{
	unsigned step = class - SHMS_SEGCLASS_LINEAR;

	if (class < SHMS_SEGCLASS_LINEAR)
		return (class + 1ul) * SHMS_SEGCLASS_ALIGN;
	return (uint64_t)SHMS_SEGCLASS_LINEAR * SHMS_SEGCLASS_ALIGN / SHMS_SEGCLASS_STEPS *
		       (SHMS_SEGCLASS_STEPS + 1 + step % SHMS_SEGCLASS_STEPS)
	       << step / SHMS_SEGCLASS_STEPS;
}

/* The smallest class into which size bytes fit. -1: there is none, or size is 0. */
int shms_segclass_for(uint64_t size);

#endif
