/* SPDX-License-Identifier: Apache-2.0 */
/* planes.h: arrays of 4- or 8-byte words turned into planes of bytes that compress well
 * and fast, and back. Pure. */
#ifndef SHMS_PLANES_H
#define SHMS_PLANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHMS_PLANE_MAX ((size_t)65536) /* bytes of a plane that can be planes of bits */

struct shms_planes {
	unsigned width; /* bytes of a word: 4 or 8 */
	bool delta;     /* the differences of neighbouring words instead of the words */
};

/* Bytes of each plane of size bytes. */
size_t shms_planes_size(struct shms_planes p, size_t size);
/* size bytes in, as many out; they do not overlap. Words beyond a multiple of eight are copied. */
void shms_planes_split(struct shms_planes p, const void *words, size_t size, void *planes);
void shms_planes_join(struct shms_planes p, const void *planes, size_t size, void *words);
/*
 * Version 0.1 wrote a plane in which few bits vary as eight planes of bits; which: a bit for each
 * such plane, the first one lowest. Turns them back into bytes, in place. scratch: room for
 * SHMS_PLANE_MAX bytes. 0, -EBADMSG: no such planes.
 */
int shms_planes_from_bits(struct shms_planes p, void *planes, size_t size, uint8_t which,
			  void *scratch);

#endif
