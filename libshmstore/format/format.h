/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.h: the bytes of an object (docs/format.md): layout, encoding, validation.
 * Pure: memory in, memory out.
 *
 *   0                superblock, 128 bytes
 *   128              key
 *   table_off        one entry of 24 bytes per buffer               (8-byte aligned)
 *   metadata_off     the caller's header, metadata_size bytes       (8-byte aligned)
 *   ...              unused room
 *   header_size      first buffer; each one 64-byte aligned, the first
 *                    page-aligned from 64 KiB of buffers up
 *   header_size + buffer_size = the file's size
 *
 * A file's bytes are input: shms_format_parse() reads each field once, out of a copy, and checks
 * every size, range, order and the header's hash before anything is used.
 */
#ifndef SHMS_FORMAT_H
#define SHMS_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHMS_FORMAT_MAGIC    "\x89SHMOBJ\n"
#define SHMS_FORMAT_VERSION  1u
#define SHMS_FORMAT_ALIGN    64u
#define SHMS_FORMAT_PAGE     4096u
/* from this many bytes of buffers on the first one is page-aligned */
#define SHMS_FORMAT_BIG      65536u
#define SHMS_FORMAT_CHECKSUM (1u << 0) /* compat_flags: buffer_hash is set */

struct shms_superblock {
	uint8_t magic[8];
	uint32_t version;
	uint32_t superblock_size; /* 128 */
	uint64_t header_size;     /* everything before the first buffer */
	uint64_t buffer_size;     /* everything from there to the end */
	uint64_t metadata_size;   /* the caller's header */
	uint32_t key_size;
	uint32_t n_buffers;
	uint32_t compat_flags;   /* unknown ones may be ignored */
	uint32_t incompat_flags; /* unknown ones forbid reading: -ENOTSUP */
	uint64_t generation;     /* random */
	uint64_t header_hash;    /* see shms_format_hash() */
	/* XXH3-128 of [header_size, end), low half first; 0 without SHMS_FORMAT_CHECKSUM */
	uint64_t buffer_hash[2];
	uint64_t reserved[5]; /* 0 */
};
_Static_assert(sizeof(struct shms_superblock) == 128, "superblock");
_Static_assert(offsetof(struct shms_superblock, header_size) == 16, "superblock");
_Static_assert(offsetof(struct shms_superblock, key_size) == 40, "superblock");
_Static_assert(offsetof(struct shms_superblock, generation) == 56, "superblock");
_Static_assert(offsetof(struct shms_superblock, buffer_hash) == 72, "superblock");

struct shms_entry {
	uint64_t offset; /* from the start of the file */
	uint64_t size;
	uint32_t flags; /* 0 */
	uint32_t reserved;
};
_Static_assert(sizeof(struct shms_entry) == 24, "entry");

/* Where things lie in an object. */
struct shms_layout {
	uint64_t table_off;
	uint64_t metadata_off;
	uint64_t metadata_size;
	uint64_t header_size;
	uint64_t buffer_size;
	uint32_t key_size;
	uint32_t n_buffers;
};

/* Lays out an object; with page_capacity > 0 the header region grows so that header and
 * buffers end in the last of that many bytes' pages (a recycled file). false: over the
 * limits, or it does not fit. */
bool shms_layout_init(struct shms_layout *ret, size_t key_size, size_t metadata_size,
		      const uint64_t *sizes, size_t n_buffers, uint64_t page_capacity);
/* Offset of the buffer after one that starts at offset with size bytes. */
static inline uint64_t shms_layout_next(uint64_t offset, uint64_t size)
{
	return (offset + size + (SHMS_FORMAT_ALIGN - 1)) & ~(uint64_t)(SHMS_FORMAT_ALIGN - 1);
}

/* The first buffer's alignment in the file. */
static inline uint64_t shms_layout_align(uint64_t buffer_size)
{
	return buffer_size >= SHMS_FORMAT_BIG ? SHMS_FORMAT_PAGE : SHMS_FORMAT_ALIGN;
}

/* Bytes before the first buffer; sizes are within limits. buffer_size: first begin to last end. */
static inline uint64_t shms_layout_header(uint64_t key_size, uint64_t metadata_size,
					  uint64_t n_buffers, uint64_t buffer_size)
{
	uint64_t align = shms_layout_align(buffer_size);
	uint64_t table_off = (sizeof(struct shms_superblock) + key_size + 7) & ~(uint64_t)7;

	return (table_off + n_buffers * sizeof(struct shms_entry) + metadata_size + align - 1) &
	       ~(align - 1);
}

/* Writes superblock, key and table (layout.metadata_off bytes) to head; hashes stay 0. */
void shms_format_head(const struct shms_layout *l, const void *key, const uint64_t *sizes,
		      uint64_t generation, void *head);
/* The header's hash: h = XXH3-64(metadata); h = XXH3-64(head up to header_hash, seed h);
 * XXH3-64(head after header_hash up to metadata_off, seed h). */
uint64_t shms_format_hash(const void *head, uint64_t metadata_off, const void *metadata,
			  uint64_t metadata_size);

/* A validated object's description. Pointers point into what was parsed. */
struct shms_object {
	struct shms_layout layout;
	uint64_t generation;
	uint64_t buffer_hash[2];
	bool checksum;
	const void *key;
	const struct shms_entry *table;
	const void *metadata;
};

/* The bytes of the header that are in use, told by the superblock alone: how much
 * shms_format_parse() needs. 0, -EBADMSG, -ENOTSUP. */
int shms_format_need(const void *file, size_t size, uint64_t file_size, uint64_t *ret_need);
/*
 * Checks the first size bytes of a file of file_size bytes and describes it. size must cover what
 * shms_format_need() says. file must be 8-byte aligned and private to the caller, or its content
 * trusted not to change meanwhile. 0, -EBADMSG, -ENOTSUP (newer version or unknown incompat flag).
 * ret_reason (may be NULL): what is wrong, static text.
 */
int shms_format_parse(const void *file, size_t size, uint64_t file_size, struct shms_object *ret,
		      const char **ret_reason);
/* Tells by the first size bytes, which must hold the key and need not be all of the header, whether
 * this looks like a finished object, and its key. A header that ends within them is checked against
 * its hash. 0, -EBADMSG, -ENOTSUP. */
int shms_format_glance(const void *file, size_t size, uint64_t file_size, const void **ret_key,
		       size_t *ret_key_size);
/* XXH3-128 of the buffers against the object's. */
bool shms_format_verify_buffers(const struct shms_object *o, const void *buffers);

#endif
