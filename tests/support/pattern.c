/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pattern.c: scratch.h's bytes that depend on seed and position. Most of what tests compute is
 * here: it is compiled with optimisation and without AddressSanitizer. The bytes that it reads are
 * mostly mappings of files, of which AddressSanitizer knows nothing.
 */
#include <string.h>

#include "scratch.h"

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
	x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
	return x ^ (x >> 31);
}

void pattern_fill(void *buf, size_t size, uint64_t seed)
{
	unsigned char *b = buf;

	for (size_t i = 0; i < size; i += 8) {
		uint64_t word = mix(seed * 0x9E3779B97F4A7C15u + i);

		memcpy(b + i, &word, size - i < 8 ? size - i : 8);
	}
}

size_t pattern_check(const void *buf, size_t size, uint64_t seed)
{
	const unsigned char *b = buf;

	for (size_t i = 0; i < size; i += 8) {
		uint64_t word = mix(seed * 0x9E3779B97F4A7C15u + i);
		size_t n = size - i < 8 ? size - i : 8;

		if (memcmp(b + i, &word, n) != 0) {
			const unsigned char *w = (const unsigned char *)&word;

			for (size_t k = 0; k < n; k++) {
				if (b[i + k] != w[k])
					return i + k;
			}
		}
	}
	return size;
}
