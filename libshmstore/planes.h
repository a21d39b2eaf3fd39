/* SPDX-License-Identifier: Apache-2.0 */
/* planes.h: arrays of 4- or 8-byte words turned into planes of bytes that compress well and fast, and back. Pure. */
#ifndef SHMS_PLANES_H
#define SHMS_PLANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHMS_PLANES    8u              /* at most */
#define SHMS_PLANE_MAX ((size_t)65536) /* bytes of a plane that can become planes of bits */

struct shms_planes {
	unsigned width; /* bytes of a word: 4 or 8 */
	bool delta;     /* the differences of neighbouring words instead of the words */
};

/* size bytes in, as many out; they do not overlap. What is left over of the last eight words is copied as it is. */
void shms_planes_split(struct shms_planes p, const void *words, size_t size, void *planes);
void shms_planes_join(struct shms_planes p, const void *planes, size_t size, void *words);
/*
 * Planes in which a few bits vary, and the others are always the same, are turned into eight planes of bits, in place. Returns which ones: a bit for
 * each plane, the first one lowest. scratch: room for SHMS_PLANE_MAX bytes. ret_vary: for each plane the bits that are not the same in all of
 * its bytes but the first eight; all of them where size is none for planes of bits.
 */
uint8_t shms_planes_to_bits(struct shms_planes p, void *planes, size_t size, void *scratch,
			    uint8_t ret_vary[SHMS_PLANES]);
/* Bytes of each plane, where they can become planes of bits; 0: they cannot. */
size_t shms_planes_size(struct shms_planes p, size_t size);
/* And back. 0, -EBADMSG: no such planes. */
int shms_planes_from_bits(struct shms_planes p, void *planes, size_t size, uint8_t which, void *scratch);

#endif
