/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec.c: zstd over one frame, as it is or as planes of bytes, and the rule what is worth it.
 *
 * Planes are made of pieces of 256 KiB, each plane as a zstd frame of its own: a piece stays in the
 * cache, where whole frames would go through memory nine times. In planes zstd finds noise and
 * repeated values; its fast (negative) levels are several times as fast as level 1, for a few per
 * cent more bytes. Without planes a frame has the level asked for.
 *
 * The rule: four samples of the frame, 64 KiB in all, are compressed as they are, and half of
 * them in each kind of planes. Less than a tenth saved as they are: not worth it; random
 * floating-point numbers shrink by 6 % that way (their exponents are alike), at a quarter of
 * what a disk writes. Planes have to save a quarter (of such numbers they save 16 %), and come
 * before zstd as it is where they save about as much, because they are several times as fast;
 * where they leave less than a third, nothing else is tried. The compressed frame must be
 * smaller by 5 %, and by a block of the disk.
 *
 * Rejected: deciding once for an object (its buffers are arrays of several types, or a pickle and
 * an array); the level asked for on planes (what is left is noise: it finds nothing more);
 * dictionaries (a frame is large).
 */
#include "codec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define PLANE_SAMPLE (SHMS_CODEC_SAMPLE / 2)
#define PLANE_LEVEL  (-2)
#define PLANES_WORTH 750 /* thousandths of what it was */
#define PLANES_GOOD  300 /* so that nothing else need be tried */
#define ZSTD_WORTH   900

struct shms_codec_context {
	ZSTD_CCtx *c; /* NULL before the first use, as d */
	ZSTD_DCtx *d;
	enum shms_codec last; /* that was chosen, if last_ratio: the best it had */
	size_t last_ratio;
	unsigned char planes[SHMS_CODEC_PIECE + 1]; /* and a byte that is 0 */
	unsigned char out[ZSTD_COMPRESSBOUND(SHMS_CODEC_SAMPLE)];
};

static const struct shms_planes kinds[SHMS_CODEC_N] = {
	[SHMS_CODEC_ZSTD_DELTA8] = {8, true},
	[SHMS_CODEC_ZSTD_DELTA4] = {4, true},
	[SHMS_CODEC_ZSTD_WORDS8] = {8, false},
};

/* ---- planes ---------------------------------------------------------------------------------- */

/*
 * Planes have the first byte of all words, then the second of all, and so on; where asked, of each
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

/* Bytes of each plane of size bytes. */
static size_t plane_size(struct shms_planes p, size_t size)
{
	return size / ((size_t)p.width * GROUP) * GROUP;
}

void shms_planes_split(struct shms_planes p, const void *words, size_t size, void *planes)
{
	size_t n = plane_size(p, size), whole = n * p.width;
	uint64_t keep = p.delta ? UINT64_MAX : 0;

	p.width == 8 ? split(words, n, 8, keep, planes) : split(words, n, 4, keep, planes);
	memcpy((unsigned char *)planes + whole, (const unsigned char *)words + whole, size - whole);
}

void shms_planes_join(struct shms_planes p, const void *planes, size_t size, void *words)
{
	size_t n = plane_size(p, size), whole = n * p.width;
	uint64_t keep = p.delta ? UINT64_MAX : 0;

	p.width == 8 ? join(planes, n, 8, keep, words) : join(planes, n, 4, keep, words);
	memcpy((unsigned char *)words + whole, (const unsigned char *)planes + whole, size - whole);
}

struct shms_codec_context *shms_codec_new(void)
{
	return calloc(1, sizeof(struct shms_codec_context));
}

void shms_codec_free(struct shms_codec_context *c)
{
	if (!c)
		return;
	ZSTD_freeCCtx(c->c);
	ZSTD_freeDCtx(c->d);
	free(c);
}

static bool can_compress(struct shms_codec_context *c)
{
	if (!c->c)
		c->c = ZSTD_createCCtx();
	return c->c;
}

/* The largest useful compressed size: 5 % less, and a block of the disk less. 0: none. */
static size_t most_of(size_t size)
{
	size_t most = size - size / 20 - 1, blocks = (size_t)shms_tier_pad(size) - SHMS_TIER_ALIGN;

	return most < blocks ? most : blocks;
}

/* Into c->planes, with the byte behind them. Returns their bytes. */
static size_t to_planes(struct shms_codec_context *c, struct shms_planes kind, const void *bytes,
			size_t size)
{
	shms_planes_split(kind, bytes, size, c->planes);
	c->planes[size] = 0;
	return size + 1;
}

/* ---- the choice ------------------------------------------------------------------------------ */

size_t shms_codec_sample_at(size_t size, unsigned i, size_t *ret_offset)
{
	size_t sample = SHMS_CODEC_SAMPLE / SHMS_CODEC_SAMPLES;

	*ret_offset = 0;
	if (size <= SHMS_CODEC_SAMPLE)
		return i == 0 ? size : 0;
	/* The end of each quarter, beginning where a word does: the object's header, nearly all
	 * zeros, says nothing of the rest. */
	*ret_offset = (size / SHMS_CODEC_SAMPLES * (i + 1) - sample) & ~(size_t)63;
	return i < SHMS_CODEC_SAMPLES ? sample : 0;
}

/* In thousandths of what it was; 1000 where it fails. */
static size_t ratio(struct shms_codec_context *c, const void *bytes, size_t size, int level)
{
	size_t r = ZSTD_compressCCtx(c->c, c->out, sizeof(c->out), bytes, size, level);

	return ZSTD_isError(r) ? 1000 : r * 1000 / size;
}

/* The same for planes of some kind. */
static size_t planes_ratio(struct shms_codec_context *c, enum shms_codec kind, const void *samples,
			   size_t size)
{
	return ratio(c, c->planes, to_planes(c, kinds[kind], samples, size), PLANE_LEVEL);
}

/* The frame before was this kind of planes, and this one is as good: the same array, most
 * likely. */
static bool goes_on(struct shms_codec_context *c, const void *samples, size_t size)
{
	size_t r = c->last_ratio ? planes_ratio(c, c->last, samples, size) : 0;

	if (!c->last_ratio || r > c->last_ratio + c->last_ratio / 8)
		return false;
	if (r < c->last_ratio)
		c->last_ratio = r;
	return true;
}

enum shms_codec shms_codec_choose(struct shms_codec_context *c, const void *samples, size_t size,
				  int level)
{
	enum shms_codec best = SHMS_CODEC_RAW;
	size_t n = size < SHMS_CODEC_SAMPLE ? size : SHMS_CODEC_SAMPLE;
	size_t half = n < PLANE_SAMPLE ? n : PLANE_SAMPLE;
	size_t planes = PLANES_WORTH, plain;

	if (level <= 0 || !most_of(size) || !can_compress(c))
		return SHMS_CODEC_RAW;
	if (goes_on(c, samples, half))
		return c->last;
	c->last_ratio = 0;
	for (enum shms_codec k = 0; k < SHMS_CODEC_N; k++) {
		size_t r;

		if (!kinds[k].width)
			continue;
		r = planes_ratio(c, k, samples, half);
		if (r < planes) {
			planes = r;
			best = k;
		}
	}
	if (planes <= PLANES_GOOD) {
		c->last = best;
		c->last_ratio = planes;
		return best;
	}
	plain = ratio(c, samples, n, 1);
	return plain <= ZSTD_WORTH && (best == SHMS_CODEC_RAW || plain + plain / 8 < planes)
		       ? SHMS_CODEC_ZSTD
		       : best;
}

/* ---- there ----------------------------------------------------------------------------------- */

/* used: 0: it failed. */
static bool packed(struct shms_codec_packing *p, size_t used, size_t size)
{
	p->used += used;
	p->packed += size;
	return used != 0;
}

static bool pack_whole(struct shms_codec_context *c, struct shms_codec_packing *p,
		       const void *bytes)
{
	size_t r = ZSTD_compressCCtx(c->c, p->out, most_of(p->size), bytes, p->size, p->level);

	return packed(p, ZSTD_isError(r) ? 0 : r, p->size);
}

/* A plane at a time, so that zstd sees for each by itself that it never varies, or is noise; then
 * what is left of the words, and the byte. */
static bool pack_piece(struct shms_codec_context *c, struct shms_codec_packing *p,
		       const void *bytes, size_t size)
{
	struct shms_planes kind = kinds[p->codec];
	size_t room = most_of(p->size) - p->used, used = 0, at = 0;
	size_t total = to_planes(c, kind, bytes, size), plane = plane_size(kind, size);

	while (at < total) {
		size_t n = plane && at < plane * kind.width ? plane : total - at;
		size_t r = ZSTD_compressCCtx(c->c, (char *)p->out + p->used + used, room - used,
					     c->planes + at, n, PLANE_LEVEL);

		if (ZSTD_isError(r))
			return false;
		used += r;
		at += n;
	}
	return packed(p, used, size);
}

size_t shms_codec_step(enum shms_codec codec, size_t size)
{
	return kinds[codec].width && size > SHMS_CODEC_PIECE ? SHMS_CODEC_PIECE : size;
}

bool shms_codec_pack(struct shms_codec_context *c, struct shms_codec_packing *p, const void *bytes,
		     size_t size)
{
	if (p->codec == SHMS_CODEC_RAW || !most_of(p->size) || !can_compress(c))
		return false;
	return kinds[p->codec].width ? pack_piece(c, p, bytes, size) : pack_whole(c, p, bytes);
}

/* ---- and back -------------------------------------------------------------------------------- */

/* The zstd frames of one piece: size bytes to c->planes. Returns how many bytes of
 * n_in they were; 0: damaged. */
static size_t unpack_frames(struct shms_codec_context *c, const char *in, size_t n_in, size_t size)
{
	size_t used = 0, done = 0;

	while (done < size) {
		size_t stored = ZSTD_findFrameCompressedSize(in + used, n_in - used), n;

		if (ZSTD_isError(stored))
			return 0;
		n = ZSTD_decompressDCtx(c->d, c->planes + done, size - done, in + used, stored);
		if (ZSTD_isError(n) || n == 0)
			return 0;
		used += stored;
		done += n;
	}
	return used;
}

/* A piece of planes to out. */
static int unpack_planes(struct shms_codec_context *c, struct shms_codec_unpacking *u,
			 struct shms_planes kind)
{
	const char *at = (const char *)u->stored + u->used;
	size_t left = u->original - u->unpacked,
	       size = left < SHMS_CODEC_PIECE ? left : SHMS_CODEC_PIECE;
	size_t stored = unpack_frames(c, at, u->size - u->used, size + 1);

	if (!stored || c->planes[size])
		return -EBADMSG;
	shms_planes_join(kind, c->planes, size, (char *)u->out + u->unpacked);
	u->used += stored;
	u->unpacked += size;
	return 0;
}

int shms_codec_unpack(struct shms_codec_context *c, struct shms_codec_unpacking *u)
{
	size_t r;

	if (u->codec == SHMS_CODEC_RAW || u->codec >= SHMS_CODEC_N)
		return -EBADMSG;
	if (!c->d)
		c->d = ZSTD_createDCtx();
	if (!c->d)
		return -ENOMEM;
	if (kinds[u->codec].width) {
		if (unpack_planes(c, u, kinds[u->codec]) < 0)
			return -EBADMSG;
		return u->unpacked == u->original && u->used != u->size ? -EBADMSG : 0;
	}
	r = ZSTD_decompressDCtx(c->d, u->out, u->original, u->stored, u->size);
	if (ZSTD_isError(r) || r != u->original)
		return -EBADMSG;
	u->used = u->size;
	u->unpacked = u->original;
	return 0;
}
