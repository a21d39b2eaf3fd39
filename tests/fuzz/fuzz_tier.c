/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_tier.c: a tier file of arbitrary bytes: header, frames, codecs.
 *
 * The first byte says how far the input is helped past the checks that random bytes never pass:
 * FIX_SIZES sets magic, version and what follows from the object's size, FIX_FRAMES lays the frames
 * out as they must be, FIX_HASH recomputes the hashes. An accepted file is used in full: each frame
 * is unpacked into a block of exactly its size.
 */
#include <errno.h>
#include <string.h>

#include "codec.h"
#include "scratch.h"
#include "tierformat.h"

enum {
	FIX_SIZES = 1,
	FIX_FRAMES = 2,
	FIX_HASH = 4
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned long n_accepted, n_frames, n_unpacked;

static void report(void)
{
	fprintf(stderr, "accepted: %lu, frames: %lu, unpacked: %lu\n", n_accepted, n_frames,
		n_unpacked);
}

static void fix_sizes(struct shms_tier_superblock *sb, uint64_t size)
{
	uint64_t most = size * 64 < 8 * (uint64_t)SHMS_TIER_FRAME ? size * 64
								  : 8 * (uint64_t)SHMS_TIER_FRAME;

	memcpy(sb->magic, SHMS_TIER_MAGIC, sizeof(sb->magic));
	sb->version = SHMS_TIER_VERSION;
	sb->superblock_size = sizeof(*sb);
	sb->incompat_flags = 0;
	sb->frame_size = SHMS_TIER_FRAME;
	sb->key_size %= 300;
	sb->object_size = sb->object_size % most + 1;
	sb->object_header %= sb->object_size + 1;
	sb->object_buffer = sb->object_size - sb->object_header;
	sb->n_frames = (uint32_t)((sb->object_size + SHMS_TIER_FRAME - 1) / SHMS_TIER_FRAME);
	sb->header_size = shms_tier_pad((256 + sb->key_size + 63) / 64 * 64 +
					sb->n_frames * sizeof(struct shms_tier_frame));
	sb->file_size = size;
}

static struct shms_tier_frame *table_of(const struct shms_tier_header *h)
{
	return (struct shms_tier_frame *)(void *)(h->bytes +
						  (256 + h->sb->key_size + 63) / 64 * 64);
}

/* The frames share what the file has behind its header. */
static void fix_frames(const struct shms_tier_header *h, uint64_t size)
{
	struct shms_tier_frame *f = table_of(h);
	uint64_t at = h->sb->header_size, left = h->sb->object_size;
	bool raw = true;

	for (uint32_t i = 0; i < h->sb->n_frames; i++, f++) {
		uint64_t room = i + 1 < h->sb->n_frames ? 4096 : size - at;

		f->offset = at;
		f->original = left < SHMS_TIER_FRAME ? (uint32_t)left : SHMS_TIER_FRAME;
		f->codec %= SHMS_CODEC_N;
		f->reserved = 0;
		f->reserved1 = 0;
		f->stored = (uint32_t)(room - f->stored % 4096);
		if (f->codec == SHMS_CODEC_RAW)
			f->stored = f->original;
		raw = raw && f->codec == SHMS_CODEC_RAW;
		at += room;
		left -= f->original;
	}
	h->sb->flags = raw ? SHMS_TIER_RAW : 0;
}

static void fix_hash(struct shms_tier_header *h, const uint8_t *file, uint64_t size)
{
	uint64_t flags = h->sb->flags, file_size = h->sb->file_size;

	h->frames = table_of(h);
	for (uint32_t i = 0; i < h->sb->n_frames; i++) {
		struct shms_tier_frame *f = &h->frames[i];
		uint64_t padded = shms_tier_pad(f->stored);

		if (f->offset <= size && padded <= size - f->offset)
			shms_tier_hash(file + f->offset, padded, f->stored_hash);
		if (f->codec == SHMS_CODEC_RAW && f->offset <= size &&
		    f->original <= size - f->offset)
			shms_tier_hash(file + f->offset, f->original, f->object_hash);
	}
	/* for the hashes of the whole; the rest stays as the input has it */
	shms_tier_header_finish(h);
	h->sb->flags = (uint32_t)flags;
	h->sb->file_size = file_size;
	memset(h->sb->header_hash, 0, sizeof(h->sb->header_hash));
	shms_tier_hash(h->bytes, h->sb->header_size, h->sb->header_hash);
}

static void use_frame(struct shms_tier_frame *f, const uint8_t *file, uint64_t size,
		      struct shms_tier_tools *tools)
{
	struct shms_tier_work w = {.object_fd = -1, .frame = f};
	uint64_t padded = shms_tier_pad(f->stored);

	ENSURE(f->offset % SHMS_TIER_ALIGN == 0 && f->offset <= size && padded <= size - f->offset);
	ENSURE(f->stored <= f->original && f->original <= SHMS_TIER_FRAME);
	w.bytes = malloc(padded);
	w.spare = malloc(f->original);
	ENSURE(w.bytes && w.spare);
	memcpy(w.bytes, file + f->offset, padded);
	shms_tier_unpack(&w, tools);
	ENSURE(w.error == 0 || (w.error == -EBADMSG && w.what));
	n_frames++;
	n_unpacked += w.error == 0;
	free(w.bytes);
	free(w.spare);
}

static void use(const struct shms_tier_header *h, const uint8_t *file, uint64_t size)
{
	struct shms_tier_tools *tools = shms_tier_tools_new();
	uint64_t sum = 0;

	ENSURE(tools);
	ENSURE(h->sb->object_header + h->sb->object_buffer == h->sb->object_size);
	for (uint32_t i = 0; i < h->sb->key_size; i++)
		sum += ((const uint8_t *)h->key)[i];
	__asm__ volatile("" : : "r"(sum)); /* reading must not be left out by the compiler */
	for (uint32_t i = 0; i < h->sb->n_frames; i++)
		use_frame(&h->frames[i], file, size, tools);
	shms_tier_tools_free(tools);
	n_accepted++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct shms_tier_header h = {0};
	const char *reason = NULL;
	uint64_t need = 0, file_size;
	uint8_t mode, *file;
	static bool once;

	if (!once)
		atexit(report);
	once = true;
	if (size < 1)
		return 0;
	mode = data[0];
	/* A tier file is as long as whole blocks. */
	file_size = shms_tier_pad(size - 1);
	if (file_size < SHMS_TIER_ALIGN)
		return 0;
	file = calloc(1, file_size);
	ENSURE(file);
	memcpy(file, data + 1, size - 1);
	if (mode & FIX_SIZES)
		fix_sizes((struct shms_tier_superblock *)(void *)file, file_size);
	if (shms_tier_header_need(file, SHMS_TIER_ALIGN, file_size, &need) == 0) {
		ENSURE(need <= file_size);
		ENSURE(shms_tier_header_alloc(&h, need) == 0);
		memcpy(h.bytes, file, need);
		h.sb = (struct shms_tier_superblock *)(void *)h.bytes;
		if (mode & FIX_FRAMES)
			fix_frames(&h, file_size);
		if (mode & FIX_HASH)
			fix_hash(&h, file, file_size);
		if (shms_tier_header_parse(&h, need, file_size, &reason) == 0)
			use(&h, file, file_size);
		else
			ENSURE(reason);
	}
	shms_tier_header_deinit(&h);
	free(file);
	return 0;
}
