/* SPDX-License-Identifier: Apache-2.0 */
/* One frame to fewer bytes and back: what is chosen for which data, and that nothing
 * comes back but what was there. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <zstd.h>

#include "codec.h"
#include "scratch.h"

#define FRAME ((size_t)SHMS_TIER_FRAME)

static struct shms_codec_context *codec;
static unsigned char *frame, *packed, *back;

static void begin(void)
{
	codec = shms_codec_new();
	frame = malloc(FRAME);
	packed = malloc(FRAME);
	back = malloc(FRAME);
	ENSURE(codec && frame && packed && back);
}

static void end(void)
{
	shms_codec_free(codec);
	free(frame);
	free(packed);
	free(back);
}

TestSuite(codec, .init = begin, .fini = end);

/* ---- data ------------------------------------------------------------------------------------ */

static uint64_t random_state;

static uint64_t next_random(void)
{
	random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return random_state >> 11; /* 53 bits */
}

static void fill8(uint64_t (*next)(size_t i, uint64_t before))
{
	uint64_t before = UINT64_C(1700000000000000000);

	random_state = 1;
	for (size_t i = 0; i < FRAME / 8; i++) {
		before = next(i, before);
		memcpy(frame + 8 * i, &before, 8);
	}
}

static uint64_t sorted8(size_t i, uint64_t before)
{
	(void)i;
	return before + next_random() % 32768;
}

static uint64_t timestamps(size_t i, uint64_t before)
{
	(void)i;
	return before + 1000000000 + next_random() % 1000;
}

static uint64_t small8(size_t i, uint64_t before)
{
	(void)i;
	(void)before;
	return next_random() % 1000;
}

static uint64_t float_noise(size_t i, uint64_t before)
{
	double d = (double)next_random() / (double)(UINT64_C(1) << 53);
	uint64_t bits;

	(void)i;
	(void)before;
	memcpy(&bits, &d, sizeof(bits));
	return bits;
}

static uint64_t sorted4(size_t i, uint64_t before)
{
	uint32_t a = (i ? (uint32_t)(before >> 32) : 7) + (uint32_t)(next_random() % 100);
	uint32_t b = a + (uint32_t)(next_random() % 100);

	return a | (uint64_t)b << 32;
}

static uint64_t small4(size_t i, uint64_t before)
{
	(void)i;
	(void)before;
	return next_random() % 200 | (next_random() % 200) << 32;
}

static void fill_text(void)
{
	static const char *const words[] = {"key ", "object ", "store ", "partition ",
					    "a ",   "of ",     "the ",   "view\n"};

	random_state = 5;
	for (size_t at = 0; at < FRAME;) {
		const char *w = words[next_random() >> 20 & 7];
		size_t n = strlen(w) < FRAME - at ? strlen(w) : FRAME - at;

		memcpy(frame + at, w, n);
		at += n;
	}
}

/* ---- there and back -------------------------------------------------------------------------- */

/* How a frame would be stored. */
static enum shms_codec choice(size_t size, int level)
{
	static unsigned char samples[SHMS_CODEC_SAMPLE];
	size_t n = 0, one, off;

	for (unsigned i = 0; (one = shms_codec_sample_at(size, i, &off)); i++) {
		cr_assert_leq(off + one, size);
		cr_assert_leq(n + one, sizeof(samples));
		memcpy(samples + n, frame + off, one);
		n += one;
	}
	return shms_codec_choose(codec, samples, size, level);
}

/* Packs and unpacks size bytes with that codec; returns what they took, 0 = did not shrink. */
static size_t there_and_back(enum shms_codec c, size_t size)
{
	struct shms_codec_packing p = {.codec = c, .level = 1, .size = size, .out = packed};
	struct shms_codec_unpacking u = {
		.codec = c, .stored = packed, .out = back, .original = size};

	while (p.packed < size) {
		size_t left = size - p.packed, step = shms_codec_step(c, size);

		if (!shms_codec_pack(codec, &p, frame + p.packed, left < step ? left : step))
			return 0;
	}
	cr_assert_eq(p.packed, size);
	cr_assert_lt(p.used, size);
	u.size = p.used;
	while (u.unpacked < size)
		cr_assert_eq(shms_codec_unpack(codec, &u), 0);
	cr_assert_eq(u.used, u.size);
	cr_assert(memcmp(back, frame, size) == 0, "codec %u gives back what it was given", c);
	return p.used;
}

static void check_choice(enum shms_codec expected, unsigned most_percent)
{
	enum shms_codec c = choice(FRAME, 1);
	size_t stored;

	cr_assert_eq(c, expected, "chosen: %u, expected: %u", c, expected);
	stored = there_and_back(c, FRAME);
	cr_assert(stored && stored * 100 < FRAME * most_percent, "%zu bytes, more than %u %%",
		  stored, most_percent);
}

Test(codec, sorted_integers_become_planes_of_differences)
{
	fill8(sorted8);
	check_choice(SHMS_CODEC_ZSTD_DELTA8, 26);
	fill8(timestamps);
	check_choice(SHMS_CODEC_ZSTD_DELTA8, 20);
	fill8(sorted4);
	check_choice(SHMS_CODEC_ZSTD_DELTA4, 27);
}

Test(codec, small_integers_become_planes)
{
	fill8(small8);
	check_choice(SHMS_CODEC_ZSTD_WORDS8, 20);
	fill8(small4);
	check_choice(SHMS_CODEC_ZSTD_WORDS8, 27);
}

Test(codec, text_is_compressed_as_it_is)
{
	fill_text();
	check_choice(SHMS_CODEC_ZSTD, 40);
}

Test(codec, noise_is_not_worth_it)
{
	pattern_fill(frame, FRAME, 42);
	cr_assert_eq(choice(FRAME, 1), SHMS_CODEC_RAW);
	fill8(float_noise);
	cr_assert_eq(choice(FRAME, 1), SHMS_CODEC_RAW);
}

/* The header before the first byte of an object of 1 MiB says nothing of the bytes behind it. */
Test(codec, noise_behind_an_objects_header_is_not_worth_it)
{
	fill8(float_noise);
	memset(frame, 0, 4096);
	cr_assert_eq(choice((1u << 20) + 4096, 1), SHMS_CODEC_RAW);
	cr_assert_eq(choice(100000, 1), SHMS_CODEC_RAW);
	cr_assert_eq(choice(FRAME, 1), SHMS_CODEC_RAW);
}

Test(codec, level_0_is_raw)
{
	memset(frame, 0, FRAME);
	cr_assert_eq(choice(FRAME, 0), SHMS_CODEC_RAW);
}

Test(codec, what_does_not_shrink_is_refused)
{
	pattern_fill(frame, FRAME, 42);
	for (enum shms_codec c = 0; c < SHMS_CODEC_N; c++)
		cr_assert_eq(there_and_back(c, FRAME), 0, "codec %u", c);
}

Test(codec, less_than_a_block_saved_is_nothing_saved)
{
	memset(frame, 0, FRAME);
	cr_assert_eq(choice(4096, 1), SHMS_CODEC_RAW);
	cr_assert_eq(there_and_back(SHMS_CODEC_ZSTD, 4096), 0);
	cr_assert_neq(choice(4097, 1), SHMS_CODEC_RAW);
	cr_assert_gt(there_and_back(SHMS_CODEC_ZSTD, 4097), 0);
}

Test(codec, every_codec_takes_every_size)
{
	static const size_t sizes[] = {4097,  4100,    5003,      65535, 65536,
				       65537, 1000003, FRAME - 1, FRAME};

	fill8(sorted8);
	for (enum shms_codec c = 1; c < SHMS_CODEC_N; c++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
			cr_assert_gt(there_and_back(c, sizes[i]), 0, "codec %u, %zu bytes", c,
				     sizes[i]);
}

Test(codec, damage_is_no_crash)
{
	fill8(sorted8);
	for (uint64_t n = 0; n < 300; n++) {
		enum shms_codec c = n % 2 ? SHMS_CODEC_ZSTD : SHMS_CODEC_ZSTD_DELTA8;
		size_t size = 600000, lied = n % 3 ? size : size + 1;
		struct shms_codec_unpacking u = {
			.codec = c, .stored = packed, .out = back, .original = lied};
		int r = 0;

		u.size = there_and_back(c, size);
		cr_assert_gt(u.size, 0);
		random_state = n;
		next_random();
		packed[next_random() % u.size] ^= (unsigned char)(1u << n % 8);
		if (n % 5 == 0)
			u.size /= 2;
		while (r == 0 && u.unpacked < lied)
			r = shms_codec_unpack(codec, &u);
		cr_assert(r == -EBADMSG || (r == 0 && lied == size && n % 5), "%d", r);
	}
}

Test(codec, more_than_the_frame_is_damage)
{
	for (enum shms_codec c = 1; c < SHMS_CODEC_N; c++) {
		struct shms_codec_unpacking u = {
			.codec = c, .stored = packed, .out = back, .original = 600000};
		int r = 0;

		fill8(sorted8);
		u.size = there_and_back(c, 600000);
		memcpy(packed + u.size, packed, u.size); /* twice */
		u.size *= 2;
		while (r == 0 && u.unpacked < u.original)
			r = shms_codec_unpack(codec, &u);
		cr_assert_eq(r, -EBADMSG, "codec %u: %d", c, r);
	}
}

/* A constant plane, one with few noisy bits, noise, and what repeats: each by itself, at any
 * size. */
Test(codec, every_kind_of_plane_comes_back)
{
	static const size_t sizes[] = {5003, 65535, 100000, 262144 - 512, 262144, 262145, 600000};
	unsigned char noise[4096];

	pattern_fill(noise, sizeof(noise), 1);
	for (size_t k = 0; k < FRAME / 8; k++) {
		unsigned char *word = frame + 8 * k;

		memset(word, 0, 8);
		word[0] = noise[k % sizeof(noise)] ^ (unsigned char)(k / sizeof(noise) * 31);
		word[1] = 0xc0 | (noise[(k * 7 + 1) % sizeof(noise)] & 5);
		word[2] = 0x77;
		word[3] = (unsigned char)(k % 1000 * k % 1000 >> 2);
	}
	memset(frame, 0xab, 64); /* the first words may differ from all others */
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		cr_assert_gt(there_and_back(SHMS_CODEC_ZSTD_WORDS8, sizes[i]), 0, "%zu bytes",
			     sizes[i]);
	cr_assert_lt(there_and_back(SHMS_CODEC_ZSTD_WORDS8, FRAME), FRAME * 35 / 100);
}

Test(codec, nothing_is_written_behind_the_room)
{
	struct shms_codec_packing p = {
		.codec = SHMS_CODEC_ZSTD_WORDS8, .level = 1, .size = 100000, .out = packed};

	pattern_fill(frame, 100000, 3);
	memset(packed, 0xee, FRAME);
	cr_assert_not(shms_codec_pack(codec, &p, frame, 100000), "noise does not shrink");
	for (size_t i = 100000; i < FRAME; i++)
		cr_assert_eq(packed[i], 0xee, "%zu", i);
}

Test(codec, one_that_we_do_not_know_is_refused)
{
	struct shms_codec_unpacking u = {
		.codec = SHMS_CODEC_N, .stored = packed, .size = 10, .out = back, .original = 20};

	cr_assert_eq(shms_codec_unpack(codec, &u), -EBADMSG);
	u.codec = SHMS_CODEC_RAW;
	cr_assert_eq(shms_codec_unpack(codec, &u), -EBADMSG);
}

/* ---- planes ---------------------------------------------------------------------------------- */

Test(planes, of_words_lie_one_behind_the_other)
{
	uint32_t words[16];
	unsigned char out[64];

	for (uint32_t i = 0; i < 16; i++)
		words[i] = 0x03020100u + i * 0x10101010u % 0xf0f0f0f0u;
	shms_planes_split((struct shms_planes){4, false}, words, sizeof(words), out);
	for (size_t i = 0; i < 16; i++)
		for (size_t k = 0; k < 4; k++)
			cr_assert_eq(out[k * 16 + i], (unsigned char)(words[i] >> 8 * k),
				     "word %zu, byte %zu", i, k);
}

/* docs/format.md, word by word. */
static void split_plainly(struct shms_planes p, const unsigned char *in, size_t size,
			  unsigned char *out)
{
	size_t n = size / ((size_t)p.width * 8) * 8;
	uint64_t before = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t word = 0, difference;

		memcpy(&word, in + i * p.width, p.width);
		difference = p.delta ? word - before : word;
		for (size_t k = 0; k < p.width; k++)
			out[k * n + i] = (unsigned char)(difference >> 8 * k);
		before = word;
	}
	memcpy(out + n * p.width, in + n * p.width, size - n * p.width);
}

Test(planes, are_what_the_format_says_at_any_size)
{
	unsigned char in[700], planes[700], expected[700];

	pattern_fill(in, sizeof(in), 9);
	for (unsigned kind = 0; kind < 4; kind++) {
		struct shms_planes p = {kind & 1 ? 8 : 4, kind & 2};

		for (size_t size = 0; size <= sizeof(in); size++) {
			shms_planes_split(p, in, size, planes);
			split_plainly(p, in, size, expected);
			cr_assert(memcmp(planes, expected, size) == 0, "kind %u, %zu bytes", kind,
				  size);
		}
	}
}

Test(planes, of_differences_of_a_row_are_all_alike)
{
	uint64_t words[32];
	unsigned char out[256], zeros[256] = {0};

	for (uint64_t i = 0; i < 32; i++)
		words[i] = (i + 1) * 3;
	shms_planes_split((struct shms_planes){8, true}, words, sizeof(words), out);
	for (size_t i = 0; i < 32; i++)
		cr_assert_eq(out[i], 3);
	cr_assert(memcmp(out + 32, zeros, 224) == 0);
}

Test(planes, join_undoes_split_at_any_size)
{
	unsigned char in[700], planes[700], out[700];

	pattern_fill(in, sizeof(in), 9);
	for (unsigned kind = 0; kind < 4; kind++) {
		struct shms_planes p = {kind & 1 ? 8 : 4, kind & 2};

		for (size_t size = 0; size <= sizeof(in); size++) {
			memset(out, 0xee, sizeof(out));
			shms_planes_split(p, in, size, planes);
			shms_planes_join(p, planes, size, out);
			cr_assert(memcmp(in, out, size) == 0, "%zu bytes", size);
			cr_assert(size == sizeof(out) || out[size] == 0xee,
				  "nothing is written behind the end");
		}
	}
}

/* Version 0.1 said by the byte behind them which planes are of bits. */
Test(codec, planes_of_bits_are_damage)
{
	unsigned char planes[8 * 128 + 1];

	pattern_fill(planes, sizeof(planes), 1);
	for (unsigned char which = 0; which < 3; which++) {
		struct shms_codec_unpacking u = {.codec = SHMS_CODEC_ZSTD_WORDS8,
						 .stored = packed,
						 .out = back,
						 .original = sizeof(planes) - 1};

		planes[sizeof(planes) - 1] = which;
		u.size = ZSTD_compress(packed, FRAME, planes, sizeof(planes), 1);
		cr_assert_not(ZSTD_isError(u.size));
		cr_assert_eq(shms_codec_unpack(codec, &u), which ? -EBADMSG : 0);
	}
}
