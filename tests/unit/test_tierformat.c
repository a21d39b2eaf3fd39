/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of a tier file: layout and parser. Damage is tried twice: as an accident (the hash
 * tells) and as a lie (the hash is recomputed, so that the checks behind it have to tell).
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <shmstore/shmstore.h>
#include <string.h>

#include "scratch.h"
#include "tierformat.h"

#define MIB ((uint64_t)1 << 20)

/* A whole header; every third frame is compressed, unless raw. */
static struct shms_tier_header whole(uint64_t size, uint32_t key_size, bool raw)
{
	static char key[SHMSTORE_KEY_MAX];
	struct shms_tier_header h;
	uint64_t offset;

	memset(key, 'k', sizeof(key));
	ENSURE(shms_tier_header_init(&h, &(struct shms_tier_object){.id = 1,
								    .generation = 2,
								    .header_size = 64,
								    .buffer_size = size - 64,
								    .key = key,
								    .key_size = key_size,
								    .level = 3}) == 0);
	offset = h.sb->header_size;
	for (uint32_t i = 0; i < h.sb->n_frames; i++) {
		struct shms_tier_frame *f = &h.frames[i];

		f->codec = raw || i % 3 ? SHMS_CODEC_RAW : SHMS_CODEC_ZSTD_DELTA8;
		f->stored = f->codec == SHMS_CODEC_RAW ? f->original : f->original / 2;
		f->offset = offset;
		f->stored_hash[0] = i;
		f->object_hash[1] = ~(uint64_t)i;
		offset += shms_tier_pad(f->stored);
	}
	shms_tier_header_finish(&h);
	cr_assert_eq(h.sb->file_size, offset);
	return h;
}

static int parse_as(struct shms_tier_header *h, uint64_t size, uint64_t file_size)
{
	const char *reason = NULL;
	int r = shms_tier_header_parse(h, size, file_size, &reason);

	cr_assert((r == 0) == (reason == NULL), "a reason exactly where there is an error");
	cr_assert(r == 0 || r == -EBADMSG || r == -ENOTSUP);
	return r;
}

static int parse(struct shms_tier_header *h)
{
	return parse_as(h, h->sb->header_size, h->sb->file_size);
}

/* ---- layout ---------------------------------------------------------------------------------- */

Test(tierformat, what_is_made_is_accepted)
{
	static const uint64_t sizes[] = {65,      4096,        4 * MIB - 1,
					 4 * MIB, 4 * MIB + 1, 900 * MIB + 5};
	static const uint32_t keys[] = {0, 1, 63, 64, 65, 4096};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (size_t k = 0; k < sizeof(keys) / sizeof(*keys); k++)
			for (unsigned raw = 0; raw < 2; raw++) {
				struct shms_tier_header h = whole(sizes[i], keys[k], raw);
				uint64_t need = 0, original = 0;

				cr_assert_eq(h.sb->header_size % 4096, 0);
				cr_assert_eq(h.sb->file_size % 4096, 0);
				cr_assert_eq(!!(h.sb->flags & SHMS_TIER_RAW), raw);
				cr_assert_eq(shms_tier_header_need(h.bytes, 4096, h.sb->file_size,
								   &need),
					     0);
				cr_assert_eq(need, h.sb->header_size);
				cr_assert_eq(parse(&h), 0);
				cr_assert_eq(parse(&h), 0, "parsing changes nothing");
				cr_assert(keys[k] == 0 || memchr(h.key, 'k', keys[k]) == h.key);
				for (uint32_t f = 0; f < h.sb->n_frames; f++)
					original += h.frames[f].original;
				cr_assert_eq(original, sizes[i]);
				shms_tier_header_deinit(&h);
			}
}

Test(tierformat, raw_frames_lie_in_one_piece)
{
	struct shms_tier_header h = whole(19 * MIB + 7, 5, true);

	for (uint32_t i = 0; i < h.sb->n_frames; i++)
		cr_assert_eq(h.frames[i].offset, h.sb->header_size + (uint64_t)i * SHMS_TIER_FRAME);
	shms_tier_header_deinit(&h);
}

Test(tierformat, what_cannot_be_is_refused)
{
	struct shms_tier_header h;
	struct shms_tier_object o = {0};

	cr_assert_eq(shms_tier_header_init(&h, &o), -EINVAL, "no bytes");
	o.header_size = UINT64_MAX;
	cr_assert_eq(shms_tier_header_init(&h, &o), -EINVAL);
	o.header_size = (uint64_t)INT64_MAX / 2;
	o.buffer_size = o.header_size;
	cr_assert_eq(shms_tier_header_init(&h, &o), -EINVAL, "no file is that long");
	o = (struct shms_tier_object){.header_size = 64, .key_size = SHMSTORE_KEY_MAX + 1};
	cr_assert_eq(shms_tier_header_init(&h, &o), -EINVAL);
	shms_tier_header_deinit(&h);
	cr_assert_eq(shms_tier_header_alloc(&h, 0), -EINVAL);
	cr_assert_eq(shms_tier_header_alloc(&h, 100), -EINVAL);
	shms_tier_header_deinit(&h);
}

/* ---- damage ---------------------------------------------------------------------------------- */

Test(tierformat, every_flipped_bit_of_a_header_is_found)
{
	struct shms_tier_header h = whole(900 * MIB + 5, 11, false);
	uint64_t size = h.sb->header_size, file_size = h.sb->file_size;

	cr_assert_gt(size, 4096);
	for (uint64_t i = 0; i < size * 8; i += i < 8 * 512 ? 1 : 37) {
		h.bytes[i / 8] ^= (unsigned char)(1u << i % 8);
		cr_assert_lt(parse_as(&h, size, file_size), 0, "bit %zu", (size_t)i);
		h.bytes[i / 8] ^= (unsigned char)(1u << i % 8);
	}
	cr_assert_eq(parse_as(&h, size, file_size), 0);
	shms_tier_header_deinit(&h);
}

Test(tierformat, another_size_of_the_file_is_found)
{
	struct shms_tier_header h = whole(9 * MIB, 11, false);
	uint64_t size = h.sb->header_size, file_size = h.sb->file_size, need;

	cr_assert_eq(parse_as(&h, size, file_size - 1), -EBADMSG);
	cr_assert_eq(parse_as(&h, size, file_size + 4096), -EBADMSG);
	cr_assert_eq(parse_as(&h, 0, file_size), -EBADMSG);
	cr_assert_eq(parse_as(&h, 255, file_size), -EBADMSG);
	cr_assert_eq(shms_tier_header_need(h.bytes, 4096, 4095, &need), -EBADMSG);
	shms_tier_header_deinit(&h);
}

Test(tierformat, a_header_cut_short_is_found)
{
	struct shms_tier_header h = whole(900 * MIB, 11, false);

	cr_assert_gt(h.sb->header_size, 4096);
	cr_assert_eq(parse_as(&h, 4096, h.sb->file_size), -EBADMSG);
	shms_tier_header_deinit(&h);
}

/* ---- lies ------------------------------------------------------------------------------------ */

/* Makes all hashes right again, whatever else is in it. */
static void seal(struct shms_tier_header *h)
{
	struct shms_tier_superblock sb = *h->sb;
	uint64_t hash[2];

	shms_tier_header_finish(h); /* the hashes of the frames' hashes */
	memcpy(sb.stored_hash, h->sb->stored_hash, sizeof(sb.stored_hash));
	memcpy(sb.object_hash, h->sb->object_hash, sizeof(sb.object_hash));
	*h->sb = sb;
	memset(h->sb->header_hash, 0, sizeof(h->sb->header_hash));
	shms_tier_hash(h->bytes, h->sb->header_size, hash);
	memcpy(h->sb->header_hash, hash, sizeof(hash));
}

#define LIE(change, expected)                                                           \
	do {                                                                            \
		struct shms_tier_header h = whole(21 * MIB + 9, 11, false);             \
		uint64_t size = h.sb->header_size, file_size = h.sb->file_size;         \
                                                                                        \
		change;                                                                 \
		if (size == h.sb->header_size)                                          \
			seal(&h);                                                       \
		cr_assert_eq(parse_as(&h, size, file_size), (expected), "%s", #change); \
		shms_tier_header_deinit(&h);                                            \
	} while (0)

Test(tierformat, lies_of_the_superblock_are_found)
{
	LIE((void)0, 0);
	LIE(h.sb->magic[0] ^= 1, -EBADMSG);
	LIE(h.sb->version++, -ENOTSUP);
	LIE(h.sb->incompat_flags = 1, -ENOTSUP);
	LIE(h.sb->superblock_size = 128, -EBADMSG);
	LIE(h.sb->header_size += 4096, -EBADMSG);
	LIE(h.sb->file_size += 4096, -EBADMSG);
	LIE(h.sb->object_size += 1, -EBADMSG);
	LIE(h.sb->object_size = UINT64_MAX, -EBADMSG);
	LIE(h.sb->object_header += 1, -EBADMSG);
	LIE(h.sb->object_header = UINT64_MAX, -EBADMSG);
	LIE(h.sb->object_buffer -= 1, -EBADMSG);
	LIE(h.sb->n_frames--, -EBADMSG);
	LIE(h.sb->frame_size *= 2, -EBADMSG);
	LIE(h.sb->key_size = 4097, -EBADMSG);
	LIE(h.sb->flags = SHMS_TIER_RAW, -EBADMSG);
	LIE(h.sb->flags = 2, -EBADMSG);
	LIE(h.sb->reserved[7] = 1, 0); /* a later version's, that does not matter to us */
}

Test(tierformat, lies_of_a_frame_are_found)
{
	LIE(h.frames[1].offset += 4096, -EBADMSG);
	LIE(h.frames[0].offset = 0, -EBADMSG);
	LIE(h.frames[2].original--, -EBADMSG);
	LIE(h.frames[0].stored += 4096, -EBADMSG);
	LIE(h.frames[0].stored = 0, -EBADMSG);
	LIE(h.frames[0].stored = h.frames[0].original, -EBADMSG);
	LIE(h.frames[1].stored -= 1, -EBADMSG);
	LIE(h.frames[1].codec = SHMS_CODEC_ZSTD, -EBADMSG);
	LIE(h.frames[0].codec = SHMS_CODEC_RAW, -EBADMSG);
	LIE(h.frames[0].codec = SHMS_CODEC_N, -ENOTSUP);
	LIE(h.frames[5].reserved = 1, -EBADMSG);
	LIE(h.frames[5].reserved1 = 1, -EBADMSG);
}

Test(tierformat, a_hash_of_hashes_that_is_not_theirs_is_found)
{
	struct shms_tier_header h = whole(21 * MIB, 3, false);
	uint64_t hash[2];

	h.sb->object_hash[0]++;
	memset(h.sb->header_hash, 0, sizeof(h.sb->header_hash));
	shms_tier_hash(h.bytes, h.sb->header_size, hash);
	memcpy(h.sb->header_hash, hash, sizeof(hash));
	cr_assert_eq(parse(&h), -EBADMSG);
	shms_tier_header_deinit(&h);
}
