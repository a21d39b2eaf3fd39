/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blake2b.c: written from RFC 7693. XXH3 names objects because it is fast and the usual keys are
 * nobody's weapon; this is for the keys that somebody made collide. Rejected: SHA-256 (three times
 * as slow without the processor's help), a library (for 60 lines).
 */
#include "blake2b.h"

#include <endian.h>
#include <string.h>

#define BLOCK  128u
#define ROUNDS 12

static const uint64_t START[8] = {
	0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu, 0xa54ff53a5f1d36f1u,
	0x510e527fade682d1u, 0x9b05688c2b3e6c1fu, 0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u,
};

static const uint8_t ORDER[10][16] = {
	{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
	{14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
	{11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
	{7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
	{9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
	{2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
	{12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
	{13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
	{6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
	{10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

/* The words that a step mixes: the columns, then the diagonals. */
static const uint8_t WORDS[8][4] = {
	{0, 4, 8, 12},  {1, 5, 9, 13},  {2, 6, 10, 14}, {3, 7, 11, 15},
	{0, 5, 10, 15}, {1, 6, 11, 12}, {2, 7, 8, 13},  {3, 4, 9, 14},
};

static uint64_t rotate(uint64_t x, int bits)
{
	return x >> bits | x << (64 - bits);
}

static void mix(uint64_t v[16], const uint8_t w[4], uint64_t x, uint64_t y)
{
	uint64_t a = v[w[0]], b = v[w[1]], c = v[w[2]], d = v[w[3]];

	a += b + x;
	d = rotate(d ^ a, 32);
	c += d;
	b = rotate(b ^ c, 24);
	a += b + y;
	d = rotate(d ^ a, 16);
	c += d;
	b = rotate(b ^ c, 63);
	v[w[0]] = a;
	v[w[1]] = b;
	v[w[2]] = c;
	v[w[3]] = d;
}

/* n: bytes hashed so far, this block's included. */
static void compress(uint64_t h[8], const uint8_t block[BLOCK], uint64_t n, uint64_t last)
{
	uint64_t v[16], m[16];

	memcpy(m, block, sizeof(m));
	for (size_t i = 0; i < 16; i++)
		m[i] = le64toh(m[i]);
	memcpy(v, h, 8 * sizeof(*v));
	memcpy(v + 8, START, sizeof(START));
	v[12] ^= n;
	v[14] ^= last;
	for (size_t i = 0; i < ROUNDS; i++) {
		const uint8_t *order = ORDER[i % 10];

		for (size_t k = 0; k < 8; k++)
			mix(v, WORDS[k], m[order[2 * k]], m[order[2 * k + 1]]);
	}
	for (size_t i = 0; i < 8; i++)
		h[i] ^= v[i] ^ v[i + 8];
}

void shms_blake2b(const void *data, size_t size, uint8_t ret_digest[SHMS_BLAKE2B_SIZE])
{
	const uint8_t *at = data;
	uint8_t block[BLOCK] = {0};
	uint64_t h[8], n = 0;

	memcpy(h, START, sizeof(h));
	h[0] ^= 0x01010000u | SHMS_BLAKE2B_SIZE; /* one leaf, no key, the digest's size */
	while (size - n > BLOCK) {
		n += BLOCK;
		compress(h, at + n - BLOCK, n, 0);
	}
	if (size - n)
		memcpy(block, at + n, size - n);
	compress(h, block, size, UINT64_MAX);
	for (size_t i = 0; i < SHMS_BLAKE2B_SIZE / 8; i++)
		h[i] = htole64(h[i]);
	memcpy(ret_digest, h, SHMS_BLAKE2B_SIZE);
}
