/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a piece: each comes back, whatever way it went, and what was noise once is not taken for noise for ever. */
#include <criterion/criterion.h>
#include <string.h>

#include "piece.h"
#include "scratch.h"

enum {
	PLANE = 32768,
	SIZE = 8 * PLANE
};

static unsigned char words[SIZE], planes[SIZE + 1], packed[2 * SIZE], back[SIZE + 1], scratch[SHMS_PLANE_MAX];
static const struct shms_planes KIND = {8, false};
static struct shms_piece_seen seen;
static ZSTD_CCtx *to;
static ZSTD_DCtx *from;

static void begin(void)
{
	to = ZSTD_createCCtx();
	from = ZSTD_createDCtx();
	ENSURE(to && from);
}

static void end(void)
{
	ZSTD_freeCCtx(to);
	ZSTD_freeDCtx(from);
}

TestSuite(piece, .init = begin, .fini = end);

/* Plane i of the words, as noise in those bits, above what is always the same. */
static void fill_plane(unsigned i, unsigned char same, unsigned char noisy, uint64_t seed)
{
	unsigned char noise[PLANE];

	pattern_fill(noise, sizeof(noise), seed);
	for (size_t k = 0; k < PLANE; k++)
		words[k * 8 + i] = (unsigned char)((same & ~noisy) | (noise[k] & noisy));
}

static size_t pack(size_t size, size_t room)
{
	uint8_t vary[SHMS_PLANES];
	struct shms_piece p = {KIND, planes, size, vary, -2};

	shms_planes_split(KIND, words, size, planes);
	planes[size] = shms_planes_to_bits(KIND, planes, size, scratch, vary);
	return shms_piece_pack(&p, &seen, to, packed, room);
}

/* Its packed bytes. */
static size_t there_and_back(size_t size)
{
	size_t n = pack(size, sizeof(packed));

	cr_assert_gt(n, 0);
	memset(back, 0xee, sizeof(back));
	cr_assert_eq(shms_piece_unpack(from, packed, n, back, size + 1), n);
	cr_assert(memcmp(back, planes, size + 1) == 0);
	return n;
}

/* One of each kind: always the same, a few bits of noise, noise, and what repeats. */
static void fill_all_kinds(void)
{
	fill_plane(0, 0, 0xff, 1);
	fill_plane(1, 0xc0, 0x05, 2);
	fill_plane(2, 0x77, 0, 0);
	for (size_t k = 0; k < PLANE; k++)
		words[k * 8 + 3] = (unsigned char)(k % 1000 * k % 1000 >> 2);
	for (unsigned i = 4; i < 8; i++)
		fill_plane(i, 0, 0, 0);
	/* The first words may differ from all others. */
	memset(words, 0xab, 64);
}

Test(piece, every_kind_of_part_comes_back)
{
	size_t n;

	fill_all_kinds();
	n = there_and_back(SIZE);
	/* Noise as it is, a quarter of a plane of bits, and what repeats, in little. */
	cr_assert_lt(n, PLANE + PLANE / 4 + PLANE / 2, "%zu", n);
	cr_assert_gt(n, PLANE + PLANE / 4);
	for (unsigned i = 0; i < 20; i++)
		cr_assert_leq(there_and_back(SIZE), n + 64);
}

Test(piece, of_any_size_comes_back)
{
	static const size_t sizes[] = {0, 1, 7, 63, 64, 511, 512, 513, 1024, 4096, 65535, 100000, SIZE - 512, SIZE - 1};

	fill_all_kinds();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		there_and_back(sizes[i]);
}

Test(piece, what_is_no_noise_any_more_is_found_out)
{
	size_t noise, first = 0, last = 0;

	for (unsigned i = 0; i < 8; i++)
		fill_plane(i, 0, 0xff, 10 + i);
	noise = there_and_back(SIZE);
	cr_assert_gt(noise, SIZE);
	/* Every byte value, and long repetitions, for zstd alone to find. */
	for (size_t k = 0; k < SIZE; k++)
		words[k] = (unsigned char)(k / 8 * 167);
	for (unsigned i = 0; i < 16; i++) {
		last = there_and_back(SIZE);
		if (i == 0)
			first = last;
	}
	cr_assert_gt(first, SIZE, "it was noise a moment ago");
	cr_assert_lt(last, SIZE / 20, "%zu", last);
}

Test(piece, without_room_it_is_refused)
{
	size_t n;

	fill_all_kinds();
	n = pack(SIZE, sizeof(packed));
	seen = (struct shms_piece_seen){0};
	for (size_t room = 0; room < n; room += room < n - 100 ? 997 : 1) {
		memset(packed, 0xee, sizeof(packed));
		/* A part that zstd has no room for is taken for noise, for which there is none either. */
		cr_assert_eq(pack(SIZE, room), 0, "%zu of %zu", room, n);
		cr_assert_eq(packed[room], 0xee);
		seen = (struct shms_piece_seen){0};
	}
	cr_assert_eq(pack(SIZE, n), n);
}

Test(piece, damage_is_refused_or_gives_no_more_than_was_asked_for)
{
	size_t n, r;

	fill_all_kinds();
	n = pack(SIZE, sizeof(packed));
	for (size_t i = 0; i < n; i += i < 100 ? 1 : 331) {
		packed[i] ^= 0x10;
		r = shms_piece_unpack(from, packed, n, back, SIZE / 2);
		cr_assert_leq(r, n);
		packed[i] ^= 0x10;
		cr_assert_eq(shms_piece_unpack(from, packed, i, back, SIZE + 1), 0, "cut off at %zu", i);
	}
	cr_assert_eq(shms_piece_unpack(from, packed, n, back, SIZE), 0, "more in it than there is room for");
	cr_assert_eq(shms_piece_unpack(from, packed, n, back, SIZE + 2), 0, "less in it than there should be");
}
