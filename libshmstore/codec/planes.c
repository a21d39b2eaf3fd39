/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planes.c: the first byte of all words, then the second of all, and so on; where asked, of each
 * word's difference to the one before.
 *
 * Numbers in an array are alike in their high bytes, and sorted or regular ones differ by little:
 * then most planes are zeros, which zstd passes at memory speed, instead of finding in every eight
 * bytes the five that it has seen. Sorted 64-bit integers with gaps of up to 2^15: 0.31 of their
 * size as they are, 0.23 as planes of differences, and several times as fast.
 *
 * Words are read in the machine's order, which is that of all our formats, little-endian.
 * Rejected: vectors of sixteen words, faster in the cache than any disk is; planes of bits, which
 * version 0.1 wrote.
 */
#include <string.h>

#include "codec.h"

#define GROUP 8u /* words: no plane has a part of one */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the formats are little-endian");

/* Byte k of word i becomes byte i of word k: H. S. Warren, Hacker's Delight, 2nd edition, 7-3. */
static inline void transpose(uint64_t x[GROUP])
{
	static const uint64_t masks[] = {0, 0x00ff00ff00ff00ff, 0x0000ffff0000ffff, 0, 0xffffffff};

#pragma GCC unroll 3
	for (unsigned d = GROUP / 2; d; d /= 2) {
#pragma GCC unroll 8
		for (unsigned i = 0; i < GROUP; i++) {
			uint64_t swapped = i & d ? 0 : (x[i] >> 8 * d ^ x[i | d]) & masks[d];

			x[i | d] ^= swapped;
			x[i] ^= swapped << 8 * d;
		}
	}
}

/* n words in planes of n bytes. keep: all bits for differences, 0 for the words; bytes that a word
 * has not are not stored. width is a constant where this is inlined. */
static inline __attribute__((always_inline)) void split(const unsigned char *words, size_t n,
							unsigned width, uint64_t keep,
							unsigned char *planes)
{
	uint64_t before = 0;

	for (size_t i = 0; i < n; i += GROUP) {
		uint64_t x[GROUP];

		for (unsigned k = 0; k < GROUP; k++) {
			uint64_t word = 0;

			memcpy(&word, words + (i + k) * width, width);
			x[k] = word - (before & keep);
			before = word;
		}
		transpose(x);
		for (unsigned k = 0; k < width; k++)
			memcpy(planes + k * n + i, &x[k], GROUP);
	}
}

static inline __attribute__((always_inline)) void join(const unsigned char *planes, size_t n,
						       unsigned width, uint64_t keep,
						       unsigned char *words)
{
	uint64_t word = 0;

	for (size_t i = 0; i < n; i += GROUP) {
		uint64_t x[GROUP] = {0};

		for (unsigned k = 0; k < width; k++)
			memcpy(&x[k], planes + k * n + i, GROUP);
		transpose(x);
		for (unsigned k = 0; k < GROUP; k++) {
			word = x[k] + (word & keep);
			memcpy(words + (i + k) * width, &word, width);
		}
	}
}

size_t shms_planes_size(struct shms_planes p, size_t size)
{
	return size / ((size_t)p.width * GROUP) * GROUP;
}

void shms_planes_split(struct shms_planes p, const void *words, size_t size, void *planes)
{
	size_t n = shms_planes_size(p, size), whole = n * p.width;
	uint64_t keep = p.delta ? UINT64_MAX : 0;

	p.width == 8 ? split(words, n, 8, keep, planes) : split(words, n, 4, keep, planes);
	memcpy((unsigned char *)planes + whole, (const unsigned char *)words + whole, size - whole);
}

void shms_planes_join(struct shms_planes p, const void *planes, size_t size, void *words)
{
	size_t n = shms_planes_size(p, size), whole = n * p.width;
	uint64_t keep = p.delta ? UINT64_MAX : 0;

	p.width == 8 ? join(planes, n, 8, keep, words) : join(planes, n, 4, keep, words);
	memcpy((unsigned char *)words + whole, (const unsigned char *)planes + whole, size - whole);
}
