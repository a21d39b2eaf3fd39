/* SPDX-License-Identifier: Apache-2.0 */
/*
 * piece.c: parts that never vary, and those that are noise, go into frames by hand (zframe.h), runs of them into one; the others through zstd,
 * each as a frame of its own.
 *
 * What is noise only zstd can tell: it is given every part of a frame's first piece, and of each RELEARNth after it, and parts that it does
 * not shrink by more than a thirty-second (what a piece's share of the object's header saves) are stored as they are until it is asked again. Asked
 * every time, it took half of the time for bytes that went to the disk as they were.
 */
#include "piece.h"

#include <string.h>

#include "zframe.h"

#define RELEARN    8u /* pieces */
#define SAVES_PART 32u

/* Where the frames go. */
struct packer {
	const struct shms_piece *p;
	struct shms_piece_seen *seen;
	ZSTD_CCtx *zstd;
	unsigned char *out;
	size_t room, used;
	struct shms_zframe byhand; /* the frame that is open, if it has content */
	bool failed;               /* no room */
};

static void close_frame(struct packer *k)
{
	size_t n;

	if (!k->byhand.content)
		return;
	n = shms_zframe_end(&k->byhand);
	k->failed |= n == 0;
	k->used += n;
	k->byhand.content = 0;
}

static struct shms_zframe *open_frame(struct packer *k)
{
	if (!k->byhand.content)
		shms_zframe_begin(&k->byhand, k->out + k->used, k->room - k->used);
	return &k->byhand;
}

static void put_same(struct packer *k, const unsigned char *bytes, size_t size, size_t n_first)
{
	struct shms_zframe *f = open_frame(k);

	shms_zframe_raw(f, bytes, n_first);
	shms_zframe_repeat(f, bytes[n_first], size - n_first);
}

/* Behind the frame that is open, which is closed where this one is kept. False: it is no smaller. */
static bool put_searched(struct packer *k, const unsigned char *bytes, size_t size)
{
	size_t room, n;

	close_frame(k);
	if (k->failed)
		return true;
	room = size - size / SAVES_PART;
	if (room > k->room - k->used)
		room = k->room - k->used;
	n = ZSTD_compressCCtx(k->zstd, k->out + k->used, room, bytes, size, k->p->level);
	if (ZSTD_isError(n))
		return false;
	k->used += n;
	return true;
}

static void put_part(struct packer *k, const unsigned char *bytes, size_t size, unsigned part)
{
	if (k->seen->noise[part] || !put_searched(k, bytes, size)) {
		k->seen->noise[part] = true;
		shms_zframe_raw(open_frame(k), bytes, size);
	}
}

static void put_plane(struct packer *k, const unsigned char *plane, size_t n, unsigned i)
{
	const struct shms_piece *p = k->p;

	if (!(p->planes[p->size] >> i & 1)) {
		if (p->vary[i] == 0)
			put_same(k, plane, n, 8);
		else
			put_part(k, plane, n, i);
		return;
	}
	for (unsigned bit = 0; bit < 8; bit++, plane += n / 8) {
		if (p->vary[i] >> bit & 1)
			put_part(k, plane, n / 8, SHMS_PLANES + 8 * i + bit);
		else
			put_same(k, plane, n / 8, 1);
	}
}

size_t shms_piece_pack(const struct shms_piece *p, struct shms_piece_seen *seen, ZSTD_CCtx *zstd, void *out,
		       size_t room)
{
	struct packer k = {.p = p, .seen = seen, .zstd = zstd, .out = out, .room = room};
	size_t n = shms_planes_size(p->kind, p->size), left = p->size + 1 - n * p->kind.width;
	const unsigned char *at = p->planes;

	if (seen->n_pieces++ % RELEARN == 0)
		memset(seen->noise, 0, sizeof(seen->noise));
	for (unsigned i = 0; n && i < p->kind.width && !k.failed; i++, at += n)
		put_plane(&k, at, n, i);
	/* No planes that could be of bits: all of it. Else what was left over of the words, and the byte. */
	if (n || !put_searched(&k, at, left))
		shms_zframe_raw(open_frame(&k), at, left);
	close_frame(&k);
	return k.failed ? 0 : k.used;
}

size_t shms_piece_unpack(ZSTD_DCtx *zstd, const void *in, size_t n_in, void *out, size_t size)
{
	size_t used = 0, done = 0;

	while (done < size) {
		const char *at = (const char *)in + used;
		size_t stored = ZSTD_findFrameCompressedSize(at, n_in - used), n;

		if (ZSTD_isError(stored))
			return 0;
		n = ZSTD_decompressDCtx(zstd, (char *)out + done, size - done, at, stored);
		if (ZSTD_isError(n) || n == 0)
			return 0;
		used += stored;
		done += n;
	}
	return used;
}
