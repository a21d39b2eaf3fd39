/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc32c.c: bit by bit for the table of 16 half bytes, half byte by half byte for the content. A profile is some hundred kilobytes, once in
 * a minute: a library or the processor's instruction would gain a millisecond.
 */
#include "crc32c.h"

#define POLYNOMIAL 0x82f63b78u

static uint32_t shifted(uint32_t crc, unsigned bits)
{
	while (bits--)
		crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
	return crc;
}

uint32_t crc32c(const void *bytes, size_t n)
{
	const uint8_t *at = bytes;
	uint32_t table[16], crc = UINT32_MAX;

	for (uint32_t i = 0; i < 16; i++)
		table[i] = shifted(i, 4);
	for (size_t i = 0; i < n; i++) {
		crc ^= at[i];
		crc = crc >> 4 ^ table[crc & 15];
		crc = crc >> 4 ^ table[crc & 15];
	}
	return ~crc;
}
