/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segpacked.h: an object in a slot: its description, 32 bytes in the slot, and the contents of its
 * extent (docs/segments.md "An extent"). Pure.
 *
 *   extent   buffers, each 64-byte aligned; then, 8-byte aligned: the table (their number and
 *            sizes), unless there is exactly one buffer; the checksum; the metadata; a key
 *            that does not fit into the slot
 *
 * Extents of 64 KiB and more begin at a page, so that a large first buffer does.
 */
#ifndef SHMS_SEGPACKED_H
#define SHMS_SEGPACKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "segment.h"

#define SHMS_SEGPACKED_KEY 16u /* a key of so many bytes fits into the slot */

enum shms_segpacked_flags {
	SHMS_SEGPACKED_TABLE = 1 << 0,    /* not exactly one buffer */
	SHMS_SEGPACKED_CHECKSUM = 1 << 1, /* XXH3-128 of the buffers' bytes is there */
	SHMS_SEGPACKED_PINNED = 1 << 2
};
/* 8 and 16 were further keys' until 0.2: such a slot is refused as a damaged one. */
#define SHMS_SEGPACKED_FLAGS 7u

/* The description as it lies in the slot. */
struct shms_segpacked_words {
	uint32_t extent;      /* its offset in the file / 64 */
	uint32_t buffer_size; /* from the first buffer's begin to the last one's end */
	uint32_t metadata_size;
	uint16_t key_size;
	uint8_t class; /* shms_segclass_size() */
	uint8_t flags;
	uint8_t key[SHMS_SEGPACKED_KEY]; /* zero behind it; all zero where it does not fit */
};
_Static_assert(sizeof(struct shms_segpacked_words) == SHMS_SEGSLOT_PACKED_WORDS * sizeof(uint64_t),
	       "description");
_Static_assert(offsetof(struct shms_segpacked_words, key_size) == 12, "description");
_Static_assert(offsetof(struct shms_segpacked_words, key) == 16, "description");

/* An object's sizes, and the place of each part in its extent. */
struct shms_segpacked {
	uint64_t extent_off; /* in the file */
	uint64_t extent_size;
	uint64_t buffer_size;
	uint32_t metadata_size;
	uint32_t n_buffers;
	uint16_t key_size;
	uint8_t class;
	uint8_t flags;
	uint8_t key[SHMS_SEGPACKED_KEY];
	/* Offsets from the extent's begin. */
	uint64_t table_off;
	uint64_t checksum_off;
	uint64_t metadata_off;
	uint64_t key_off; /* of a key that is not in the slot */
	uint64_t used;    /* bytes, all together */
};

/*
 * Lays an object out, and finds the class of its extent. key: copied, if it fits into the slot.
 * flags: without _TABLE. 0; -EFBIG: it takes more than the largest extent; -EINVAL: the key is
 * empty, or longer than 65535 bytes.
 */
int shms_segpacked_plan(const uint64_t *sizes, uint32_t n_buffers, uint32_t metadata_size,
			const void *key, size_t key_size, uint8_t flags,
			struct shms_segpacked *ret);
/*
 * For the owner, while the slot is WRITING: _table() writes the table, if there is one, into the
 * extent at which extent points; _write() writes the description into the slot.
 */
void shms_segpacked_table(const struct shms_segpacked *o, const uint64_t *sizes, uint8_t *extent);
void shms_segpacked_write(const struct shms_segslot *slot, const struct shms_segpacked *o);
/*
 * Copies the description out of the slot, each word once, and checks that all that it describes
 * lies in one extent, and that extent in the segment. The words belong together only if the slot
 * was SEALED with one generation all the while; the caller finds that out. 0; -EBADMSG: ret has
 * numbers that are not to be used.
 */
int shms_segpacked_read(const struct shms_segment *g, const struct shms_segslot *slot,
			struct shms_segpacked *ret);
/*
 * Returns the size of the key of the slot's object, which the caller holds by name, and its bytes,
 * if it has SHMS_SEGPACKED_KEY at most.
 */
static inline size_t shms_segpacked_key_words(const struct shms_segslot *slot, uint64_t ret[2])
{
	ret[0] = shms_segword_plain_load(&slot->packed[2]);
	ret[1] = shms_segword_plain_load(&slot->packed[3]);
	return (uint16_t)(shms_segword_plain_load(&slot->packed[1]) >> 32);
}
/* Bytes of the slot's extent, as its description says, which the caller holds by name. */
static inline uint64_t shms_segpacked_extent_size(const struct shms_segslot *slot)
{
	return shms_segclass_size((uint8_t)(shms_segword_plain_load(&slot->packed[1]) >> 48));
}
/* The key of the object o, which was read out of its slot. */
static inline const void *shms_segpacked_key(const struct shms_segment *g,
					     const struct shms_segpacked *o)
{
	return o->key_size <= SHMS_SEGPACKED_KEY ? (const void *)o->key
						 : g->bytes + o->extent_off + o->key_off;
}
/*
 * Copies the sizes of the o->n_buffers buffers, and checks them against the whole, under the same
 * condition. 0, -EBADMSG.
 */
int shms_segpacked_sizes(const struct shms_segment *g, const struct shms_segpacked *o,
			 uint64_t *ret_sizes);
/* The checksum of the buffers in that extent. False: the object has none. */
bool shms_segpacked_checksum(const struct shms_segpacked *o, const uint8_t *extent,
			     uint64_t ret_hash[2]);
/* Sets or clears flags of the object in an own slot: one access, so that others
 * read what was or what is. */
static inline void shms_segpacked_flag(const struct shms_segslot *slot, uint8_t flags, bool on)
{
	uint64_t word = shms_segword_plain_load(&slot->packed[1]), bits = (uint64_t)flags << 56;

	shms_segword_plain_store(&slot->packed[1], on ? word | bits : word & ~bits);
}
static inline uint8_t shms_segpacked_flags_of(const struct shms_segslot *slot)
{
	return (uint8_t)(shms_segword_plain_load(&slot->packed[1]) >> 56);
}
/* Could the segment have an extent of that class there: in its data, and aligned as it must be? */
bool shms_segpacked_extent(const struct shms_segment *g, uint32_t extent, uint8_t class);

#endif
