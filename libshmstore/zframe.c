/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zframe.c: magic, a descriptor (a single segment, its size in four bytes), that size, blocks. The size and which block is the last one are
 * known in the end.
 */
#include "zframe.h"

#include <stdint.h>
#include <string.h>

#define MAGIC      0xfd2fb528u
#define DESCRIPTOR 0xa0u /* single segment, Frame_Content_Size of four bytes, no checksum, no dictionary */
#define HEADER     9u
#define BLOCK_HEAD 3u
#define BLOCK_MAX  131072u /* bytes that one may stand for */

enum block {
	RAW = 0,
	RLE = 1
};

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the formats are little-endian");

void shms_zframe_begin(struct shms_zframe *f, void *out, size_t room)
{
	*f = (struct shms_zframe){.out = out, .room = room, .used = HEADER};
}

/* A block of size bytes, of which stored ones follow. */
static void add(struct shms_zframe *f, enum block type, const void *bytes, size_t stored, size_t size)
{
	uint32_t head = (uint32_t)type << 1 | (uint32_t)size << 3;
	size_t at = f->used;

	f->used += BLOCK_HEAD + stored;
	f->content += size;
	if (f->used > f->room)
		return;
	memcpy(f->out + at, &head, BLOCK_HEAD);
	memcpy(f->out + at + BLOCK_HEAD, bytes, stored);
	f->last = at;
}

void shms_zframe_raw(struct shms_zframe *f, const void *bytes, size_t size)
{
	for (size_t off = 0, n; off < size; off += n) {
		n = size - off < BLOCK_MAX ? size - off : BLOCK_MAX;
		add(f, RAW, (const unsigned char *)bytes + off, n, n);
	}
}

void shms_zframe_repeat(struct shms_zframe *f, unsigned char byte, size_t size)
{
	for (size_t off = 0, n; off < size; off += n) {
		n = size - off < BLOCK_MAX ? size - off : BLOCK_MAX;
		add(f, RLE, &byte, 1, n);
	}
}

size_t shms_zframe_end(struct shms_zframe *f)
{
	uint32_t magic = MAGIC, size = (uint32_t)f->content;

	if (!f->content || f->used > f->room || f->content > UINT32_MAX)
		return 0;
	memcpy(f->out, &magic, sizeof(magic));
	f->out[sizeof(magic)] = DESCRIPTOR;
	memcpy(f->out + sizeof(magic) + 1, &size, sizeof(size));
	f->out[f->last] |= 1;
	return f->used;
}
