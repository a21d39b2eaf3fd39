/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierframe.c: one frame, in whichever thread, a piece at a time: what has just been
 * copied is hashed and packed, or what has just been unpacked is hashed and copied, while
 * it is in the processor's cache.
 *
 * The object's bytes are copied with pread and pwrite: on tmpfs that is faster than mapping (the
 * page tables cost more than the copy), cannot fault with SIGBUS, takes its memory before anything
 * is lost, and leaves no mapping that the test for other users of the object would see. A raw frame
 * without padding has one hash, not two.
 */

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "codec.h"
#include "sys.h"
#include "xxh3.h"

struct shms_tier_tools {
	struct shms_codec_context *codec;
	XXH3_state_t *hash;
	unsigned char samples[SHMS_CODEC_SAMPLE];
};

struct shms_tier_tools *shms_tier_tools_new(void)
{
	struct shms_tier_tools *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->codec = shms_codec_new();
	t->hash = XXH3_createState();
	if (!t->codec || !t->hash) {
		shms_tier_tools_free(t);
		return NULL;
	}
	return t;
}

void shms_tier_tools_free(struct shms_tier_tools *t)
{
	if (!t)
		return;
	shms_codec_free(t->codec);
	XXH3_freeState(t->hash);
	free(t);
}

static int fail(struct shms_tier_work *w, int error, const char *what)
{
	w->error = error;
	w->what = what;
	return error;
}

static size_t piece_of(size_t left)
{
	return left < SHMS_CODEC_PIECE ? left : SHMS_CODEC_PIECE;
}

/* ---- to the disk ----------------------------------------------------------------------------- */

/* Bytes of the frame, at off, all of them. */
static int read_bytes(struct shms_tier_work *w, void *to, size_t size, size_t off)
{
	ssize_t n = shms_pread_all(w->object_fd, to, size, w->object_offset + off);

	if (n < 0)
		return fail(w, (int)n, "the object cannot be read");
	return (size_t)n == size ? 0 : fail(w, -EIO, "the object is shorter than it was");
}

static int choose(struct shms_tier_work *w, struct shms_tier_tools *t, enum shms_codec *ret)
{
	size_t size, off, n = 0;

	*ret = SHMS_CODEC_RAW;
	if (w->level <= 0)
		return 0;
	for (unsigned i = 0; (size = shms_codec_sample_at(w->frame->original, i, &off)); i++) {
		int r = read_bytes(w, t->samples + n, size, off);

		if (r < 0)
			return r;
		n += size;
	}
	*ret = shms_codec_choose(t->codec, t->samples, w->frame->original, w->level);
	return 0;
}

/* The frame's bytes at off, to where they are wanted. */
static int read_and_hash(struct shms_tier_work *w, struct shms_tier_tools *t, void *to, size_t size,
			 size_t off)
{
	int r = read_bytes(w, to, size, off);

	if (r == 0)
		XXH3_128bits_update(t->hash, to, size);
	return r;
}

/* Into w->spare, out of as much of w->bytes as the codec wants to see at once. 1: that is
 * it; 0: it does not shrink. */
static int copy_packed(struct shms_tier_work *w, struct shms_tier_tools *t, enum shms_codec codec)
{
	struct shms_tier_frame *f = w->frame;
	struct shms_codec_packing p = {
		.codec = codec, .level = w->level, .size = f->original, .out = w->spare};
	size_t step = shms_codec_step(codec, f->original), have = 0;

	XXH3_128bits_reset(t->hash);
	for (size_t off = 0, size; off < f->original; off += size) {
		int r;

		size = piece_of(f->original - off);
		r = read_and_hash(w, t, (char *)w->bytes + have, size, off);
		if (r < 0)
			return r;
		have += size;
		if (have < step && off + size < f->original)
			continue;
		if (!shms_codec_pack(t->codec, &p, w->bytes, have))
			return 0;
		have = 0;
	}
	f->codec = codec;
	f->stored = (uint32_t)p.used;
	w->at = w->spare;
	return 1;
}

static int copy_as_it_is(struct shms_tier_work *w, struct shms_tier_tools *t)
{
	struct shms_tier_frame *f = w->frame;
	int r = 0;

	XXH3_128bits_reset(t->hash);
	for (size_t off = 0, size; r == 0 && off < f->original; off += size) {
		size = piece_of(f->original - off);
		r = read_and_hash(w, t, (char *)w->bytes + off, size, off);
	}
	f->codec = SHMS_CODEC_RAW;
	f->stored = f->original;
	w->at = w->bytes;
	return r;
}

/* Reads, hashes and packs. The bytes to store are at w->at. */
static int copy_in(struct shms_tier_work *w, struct shms_tier_tools *t)
{
	enum shms_codec codec;
	int r = choose(w, t, &codec);

	if (r == 0 && codec != SHMS_CODEC_RAW)
		r = copy_packed(w, t, codec);
	/* A frame that did not shrink after all is read once more. */
	if (r == 0)
		r = copy_as_it_is(w, t);
	if (r < 0)
		return r;
	shms_xxh3_digest(t->hash, w->frame->object_hash);
	return 0;
}

void shms_tier_pack(struct shms_tier_work *w, struct shms_tier_tools *t)
{
	struct shms_tier_frame *f = w->frame;
	size_t padded;

	w->error = 0;
	if (!t) {
		fail(w, -ENOMEM, "the object cannot be packed");
		return;
	}
	if (copy_in(w, t) < 0)
		return;
	padded = (size_t)shms_tier_pad(f->stored);
	memset((char *)w->at + f->stored, 0, padded - f->stored);
	if (f->codec == SHMS_CODEC_RAW && padded == f->original)
		memcpy(f->stored_hash, f->object_hash, sizeof(f->stored_hash));
	else
		shms_tier_hash(w->at, padded, f->stored_hash);
}

/* ---- and back -------------------------------------------------------------------------------- */

/* Hashes and writes a piece of the object. */
static int copy_piece(struct shms_tier_work *w, struct shms_tier_tools *t, void *bytes, size_t size,
		      size_t off)
{
	int r;

	XXH3_128bits_update(t->hash, bytes, size);
	if (w->object_fd < 0)
		return 0;
	r = shms_write_at(w->object_fd, bytes, size, w->object_offset + off);
	return r < 0 ? fail(w, r, "the object cannot be written") : 0;
}

static int copy_out_raw(struct shms_tier_work *w, struct shms_tier_tools *t)
{
	int r = 0;

	for (size_t off = 0, size; r == 0 && off < w->frame->original; off += size) {
		size = piece_of(w->frame->original - off);
		r = copy_piece(w, t, (char *)w->bytes + off, size, off);
	}
	return r;
}

static int copy_out_unpacked(struct shms_tier_work *w, struct shms_tier_tools *t)
{
	const struct shms_tier_frame *f = w->frame;
	struct shms_codec_unpacking u = {.codec = f->codec,
					 .stored = w->bytes,
					 .size = f->stored,
					 .out = w->spare,
					 .original = f->original};
	int r = 0;

	while (r == 0 && u.unpacked < u.original) {
		size_t off = u.unpacked;

		r = shms_codec_unpack(t->codec, &u);
		if (r < 0)
			return fail(w, r,
				    r == -ENOMEM ? "the object cannot be unpacked"
						 : "cannot be decompressed");
		r = copy_piece(w, t, (char *)w->spare + off, u.unpacked - off, off);
	}
	return r;
}

void shms_tier_unpack(struct shms_tier_work *w, struct shms_tier_tools *t)
{
	const struct shms_tier_frame *f = w->frame;
	size_t padded = (size_t)shms_tier_pad(f->stored);
	bool whole = f->codec == SHMS_CODEC_RAW && padded == f->original;
	uint64_t hash[2];

	w->error = 0;
	if (!t) {
		fail(w, -ENOMEM, "the object cannot be unpacked");
		return;
	}
	if (!whole) {
		shms_tier_hash(w->bytes, padded, hash);
		if (memcmp(hash, f->stored_hash, sizeof(hash)) != 0) {
			fail(w, -EBADMSG, "is damaged: its checksum is wrong");
			return;
		}
	}
	XXH3_128bits_reset(t->hash);
	if ((f->codec == SHMS_CODEC_RAW ? copy_out_raw(w, t) : copy_out_unpacked(w, t)) < 0)
		return;
	shms_xxh3_digest(t->hash, hash);
	if (whole && memcmp(hash, f->stored_hash, sizeof(hash)) != 0)
		fail(w, -EBADMSG, "is damaged: its checksum is wrong");
	else if (memcmp(hash, f->object_hash, sizeof(hash)) != 0)
		fail(w, -EBADMSG,
		     "is not what it was: the checksum of the object's bytes is wrong");
}
