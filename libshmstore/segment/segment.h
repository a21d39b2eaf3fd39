/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment.h: a segment as bytes (docs/segments.md "A segment"): its header, the places of its
 * parts, and a mapped segment with bounds that others cannot change. Pure: memory in, memory out.
 *
 *   0           header, written once: checked once and copied
 *   2048        who uses free slots, and who takes their memory
 *   4096        control, then a record for each holder
 *   hints_off   a bit for each slot
 *   slots_off   the slots
 *   data_off    extents, to the end
 *
 * The shape is a function of three numbers (slots, holders, size). A header must say exactly what
 * they give, so that no offset is believed.
 */
#ifndef SHMS_SEGMENT_H
#define SHMS_SEGMENT_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "segword.h"

/* ---- the words of a slot (docs/segments.md "A slot") ----
 *
 *   state word   bits 0-1 the state; 2-3 zero; 4-15 a bit for each lease; 16-39 the end of the
 *                last lease; 40-63 the generation. Leases and their end only while SEALED
 *   holder word  bits 2i and 2i + 1 of word w: holder 32 w + i has the object by name; by views
 *                only
 */

enum shms_segstate {
	SHMS_SEG_FREE = 0,
	SHMS_SEG_WRITING = 1,
	SHMS_SEG_SEALED = 2,
	/* the owner looks whether it may take the slot back; the object is there still */
	SHMS_SEG_CLOSING = 3
};

#define SHMS_SEG_LEASES       12u
#define SHMS_SEG_GENERATION   ((UINT32_C(1) << 24) - 1) /* the greatest one; 0 follows */
#define SHMS_SEG_END          ((UINT32_C(1) << 24) - 1)
#define SHMS_SEG_END_MS       2000u /* an end's unit, of CLOCK_BOOTTIME */
/*
 * Ends are compared on a circle of 388 days: an end further away than this looks like a past one.
 */
#define SHMS_SEG_LEASE_MAX_MS (UINT64_C(190) * 24 * 3600 * 1000)

static inline enum shms_segstate shms_segstate_of(uint64_t word)
{
	return (enum shms_segstate)(word & 3);
}

static inline uint32_t shms_segstate_generation(uint64_t word)
{
	return (uint32_t)(word >> 40);
}

static inline uint64_t shms_segstate_make(enum shms_segstate state, uint32_t generation)
{
	return (uint64_t)(generation & SHMS_SEG_GENERATION) << 40 | (uint64_t)state;
}

/* Has the slot an object, whether or not its owner just looks at it? */
static inline bool shms_segstate_published(uint64_t word)
{
	return (word & 2) != 0;
}

static inline uint64_t shms_segstate_lease(unsigned lease)
{
	return UINT64_C(1) << (4 + lease);
}

/* A bit for each lease that is out. */
static inline uint32_t shms_segstate_leases(uint64_t word)
{
	return (uint32_t)(word >> 4) & ((1u << SHMS_SEG_LEASES) - 1);
}

static inline uint32_t shms_segstate_end(uint64_t word)
{
	return (uint32_t)(word >> 16) & SHMS_SEG_END;
}

/*
 * A lease's end in the word's unit, rounded up, and the time now, rounded down, so that no lease
 * ends too early.
 */
static inline uint32_t shms_segend_of_ms(uint64_t boot_ms)
{
	return (uint32_t)(boot_ms / SHMS_SEG_END_MS + (boot_ms % SHMS_SEG_END_MS != 0)) &
	       SHMS_SEG_END;
}

static inline uint32_t shms_segnow_of_ms(uint64_t boot_ms)
{
	return (uint32_t)(boot_ms / SHMS_SEG_END_MS) & SHMS_SEG_END;
}

/* Is a later than b, on the circle? */
static inline bool shms_segend_later(uint32_t a, uint32_t b)
{
	uint32_t ahead = (a - b) & SHMS_SEG_END;

	return ahead != 0 && ahead <= SHMS_SEG_END / 2;
}

/*
 * Parts of the word, to compare with shms_segstate_make(): state and generation; state and
 * generation of any state with an object.
 */
#define SHMS_SEGSTATE_WHAT      (UINT64_C(3) | (uint64_t)SHMS_SEG_GENERATION << 40)
#define SHMS_SEGSTATE_PUBLISHED (UINT64_C(2) | (uint64_t)SHMS_SEG_GENERATION << 40)

/*
 * SEALED, with one lease more than word has, until end. All leases of a slot end together, with the
 * last of them.
 */
static inline uint64_t shms_segstate_leased(uint64_t word, unsigned lease, uint32_t end)
{
	if (shms_segstate_leases(word) && shms_segend_later(shms_segstate_end(word), end))
		end = shms_segstate_end(word);
	return shms_segstate_make(SHMS_SEG_SEALED, shms_segstate_generation(word)) |
	       (uint64_t)end << 16 | (uint64_t)shms_segstate_leases(word) << 4 |
	       shms_segstate_lease(lease);
}

/* SEALED without that lease. The last lease takes the end with it. */
static inline uint64_t shms_segstate_unleased(uint64_t word, unsigned lease)
{
	word &= ~shms_segstate_lease(lease);
	return shms_segstate_leases(word)
		       ? word
		       : shms_segstate_make(SHMS_SEG_SEALED, shms_segstate_generation(word));
}

/* Is a lease out that has not ended? */
static inline bool shms_segstate_promised(uint64_t word, uint32_t now)
{
	return shms_segstate_leases(word) && !shms_segend_later(now, shms_segstate_end(word));
}

#define SHMS_SEG_OWNER          0u  /* the owner's number as a holder */
#define SHMS_SEG_HOLDERS_A_WORD 32u /* holders in one word */

static inline uint64_t shms_segholder_name(unsigned holder)
{
	return UINT64_C(1) << holder % SHMS_SEG_HOLDERS_A_WORD * 2;
}

static inline uint64_t shms_segholder_view(unsigned holder)
{
	return UINT64_C(2) << holder % SHMS_SEG_HOLDERS_A_WORD * 2;
}

/*
 * A kept store's intent: the slot and the generation that it is about to adopt, in one word of its
 * record; 0: none. A process that recovers the store finds by it a name that was set on another
 * object than was meant.
 */
#define SHMS_SEGINTENT_SET (UINT64_C(1) << 63)

static inline uint64_t shms_segintent_make(uint32_t slot, uint32_t generation)
{
	return SHMS_SEGINTENT_SET | (uint64_t)(generation & SHMS_SEG_GENERATION) << 32 | slot;
}

static inline uint32_t shms_segintent_generation(uint64_t intent)
{
	return (uint32_t)(intent >> 32) & SHMS_SEG_GENERATION;
}

/* ---- the sizes of extents ----
 *
 * Multiples of 64 bytes up to 2 KiB; above, 16 sizes for each doubling, up to 32 MiB, so that at
 * most a sixteenth is lost. An extent keeps its class and its slot for ever.
 */
#define SHMS_SEGCLASSES     256u
#define SHMS_SEGCLASS_ALIGN 64u
#define SHMS_SEGCLASS_MAX   (UINT64_C(32) << 20) /* the largest extent */
/* extents of so many bytes begin at a page, and are whole pages */
#define SHMS_SEGCLASS_BIG   65536u

/* classes 0 to 31 have 64 (c + 1) bytes; class 32 + 16 d + i has 2048 * 2^d * (17 + i) / 16 */
#define SHMS_SEGCLASS_LINEAR 32u
#define SHMS_SEGCLASS_STEPS  16u

/* Bytes of an extent of that class. */
static inline uint64_t shms_segclass_size(uint8_t class)
{
	unsigned step = class - SHMS_SEGCLASS_LINEAR;

	if (class < SHMS_SEGCLASS_LINEAR)
		return (class + 1ul) * SHMS_SEGCLASS_ALIGN;
	return (uint64_t)SHMS_SEGCLASS_LINEAR * SHMS_SEGCLASS_ALIGN / SHMS_SEGCLASS_STEPS *
		       (SHMS_SEGCLASS_STEPS + 1 + step % SHMS_SEGCLASS_STEPS)
	       << step / SHMS_SEGCLASS_STEPS;
}

/* The smallest class into which size bytes fit. -1: there is none, or size is 0. */
int shms_segclass_for(uint64_t size);

/* ---- a segment ---- */

#define SHMS_SEGMENT_MAGIC       "\x89SHMSEG\n"
#define SHMS_SEGMENT_VERSION     1u
#define SHMS_SEGMENT_USE_OFF     2048u
#define SHMS_SEGMENT_CONTROL_OFF 4096u
#define SHMS_SEGMENT_PAGE        4096u
#define SHMS_SEGMENT_SLOTS_MAX   ((UINT32_C(1) << 24) - 1)
#define SHMS_SEGMENT_WORDS_MAX   8u
/* 64 GiB: an extent's place is told in 32 bits of 64 bytes */
#define SHMS_SEGMENT_SIZE_MAX    (UINT64_C(1) << 36)

struct shms_segment_header {
	uint8_t magic[8];
	uint32_t version;
	uint32_t n_slots;
	uint32_t n_holders; /* 32, 64, 128, 256 */
	uint32_t zero;
	uint64_t size; /* of the file */
	uint64_t hints_off;
	uint64_t slots_off;
	uint64_t data_off;
	uint8_t uuid[16];
	uint8_t owner_uuid[16]; /* of the store that made it */
	uint64_t hash;          /* XXH3-64 of what stands before */
};
_Static_assert(sizeof(struct shms_segment_header) == 96, "header");
_Static_assert(offsetof(struct shms_segment_header, size) == 24, "header");
_Static_assert(offsetof(struct shms_segment_header, uuid) == 56, "header");
_Static_assert(offsetof(struct shms_segment_header, hash) == 88, "header");

struct shms_segment_control {
	/* slots that the owner ever cut; it alone writes this. release: their words are
	 * zero, their extents are told */
	_Atomic uint32_t n_born;
	_Atomic uint32_t n_hints;   /* goes up after a hint is set */
	_Atomic uint32_t n_refused; /* stores that found no record */
	uint8_t reserved[52];       /* 0 */
};
_Static_assert(sizeof(struct shms_segment_control) == 64, "control");

/* Words between the owner and the takers of its memory (seguse.h). */
struct shms_segment_use {
	_Atomic uint32_t owner;   /* not 0: it uses free slots. It alone writes this */
	_Atomic uint32_t taken;   /* rises before a taking; the lock's holder writes these two */
	_Atomic uint64_t vain_ms; /* when there was none (bootclock.c) */
	uint8_t reserved[48];     /* 0 */
};
_Static_assert(sizeof(struct shms_segment_use) == 64, "use");

enum shms_segrecord_state {
	SHMS_SEGRECORD_FREE = 0,
	SHMS_SEGRECORD_ACTIVE = 1,
	SHMS_SEGRECORD_KEPT = 2,  /* its names outlive its process */
	SHMS_SEGRECORD_ORPHAN = 3 /* the owner's, when it is gone for good */
};

/* A holder's record. The process that has the lock of the holder's byte writes it. */
struct shms_segrecord {
	struct shms_segword state;
	struct shms_segword intent; /* shms_segintent_make() */
	uint8_t store_uuid[16];
	uint32_t pid;
	uint8_t reserved[28]; /* 0 */
};
_Static_assert(sizeof(struct shms_segrecord) == 64, "record");
_Static_assert(offsetof(struct shms_segrecord, store_uuid) == 16, "record");
_Static_assert(offsetof(struct shms_segrecord, pid) == 32, "record");

struct shms_segment_shape {
	uint32_t n_slots;
	uint32_t n_words; /* of holders in a slot: 1, 2, 4, 8 */
	uint64_t size;
	uint64_t hints_off;
	uint64_t slots_off;
	uint64_t data_off;
};

/* A mapped segment: two maps of one file, and the bounds of every access to them. */
struct shms_segment {
	uint8_t *books;       /* [0, data_off): header, control, records, hints, slots */
	const uint8_t *bytes; /* [0, size), for reading; NULL: not mapped */
	/* Reads size bytes from off on, where bytes is NULL. NULL: nobody
	 * reads extents. 0, -errno. */
	int (*fetch)(const struct shms_segment *g, uint64_t off, void *ret, uint64_t size);
	struct shms_segment_shape shape;
	uint8_t uuid[16];
	uint8_t owner_uuid[16];
};

/* A slot's place in the map. */
struct shms_segslot {
	struct shms_segword *state;
	struct shms_segword *holders; /* [n_words] */
	struct shms_segword *packed;  /* [4]: below */
	uint32_t n_words;
};

#define SHMS_SEGSLOT_PACKED_WORDS 4u

/*
 * Computes the shape of a segment of size bytes. -EINVAL: there is no such shape, or no room for an
 * extent.
 */
int shms_segment_shape(uint32_t n_slots, uint32_t n_holders, uint64_t size,
		       struct shms_segment_shape *ret);
void shms_segment_header(const struct shms_segment_shape *shape, const uint8_t uuid[16],
			 const uint8_t owner_uuid[16], struct shms_segment_header *ret);
/*
 * Checks a header, which is a private copy of the file's first bytes, and fills shape and uuids of
 * ret. file_size: the file's. 0; -EBADMSG; -ENOTSUP: another version.
 */
int shms_segment_check(const struct shms_segment_header *header, uint64_t file_size,
		       struct shms_segment *ret);

static inline uint32_t shms_segment_holders(const struct shms_segment *g)
{
	return g->shape.n_words * SHMS_SEG_HOLDERS_A_WORD;
}

static inline uint64_t shms_segslot_size(uint32_t n_words)
{
	return (1 + n_words + SHMS_SEGSLOT_PACKED_WORDS) * sizeof(struct shms_segword);
}

/* index < n_slots: of our own segment, or checked. */
static inline struct shms_segslot shms_segslot_at(const struct shms_segment *g, uint32_t index)
{
	uint8_t *at = g->books + g->shape.slots_off + index * shms_segslot_size(g->shape.n_words);
	struct shms_segword *words = (struct shms_segword *)(void *)at;

	return (struct shms_segslot){words, words + 1, words + 1 + g->shape.n_words,
				     g->shape.n_words};
}

/* The word that has the bits of that holder. */
static inline struct shms_segword *shms_segslot_word(const struct shms_segslot *slot,
						     unsigned holder)
{
	return &slot->holders[holder / SHMS_SEG_HOLDERS_A_WORD];
}

/* Has the holder the slot's object by name? */
static inline bool shms_segslot_named(const struct shms_segslot *slot, unsigned holder)
{
	return shms_segword_part(shms_segslot_word(slot, holder), shms_segholder_name(holder)) != 0;
}

static inline struct shms_segment_control *shms_segment_control(const struct shms_segment *g)
{
	return (struct shms_segment_control *)(void *)(g->books + SHMS_SEGMENT_CONTROL_OFF);
}

static inline struct shms_segment_use *shms_segment_use(const struct shms_segment *g)
{
	return (struct shms_segment_use *)(void *)(g->books + SHMS_SEGMENT_USE_OFF);
}

/* holder < shms_segment_holders(g): our own, or checked. */
static inline struct shms_segrecord *shms_segment_record(const struct shms_segment *g,
							 unsigned holder)
{
	return (struct shms_segrecord *)(void *)(g->books + SHMS_SEGMENT_CONTROL_OFF +
						 sizeof(struct shms_segment_control) +
						 holder * sizeof(struct shms_segrecord));
}

/*
 * The number of slots to look at: never more than there is room for, whatever the control page
 * says. acquire: of the owner's release.
 */
static inline uint32_t shms_segment_born(const struct shms_segment *g)
{
	uint32_t n = atomic_load_explicit(&shms_segment_control(g)->n_born, memory_order_acquire);

	return n < g->shape.n_slots ? n : g->shape.n_slots;
}

/*
 * Hints. A holder that leaves a slot, and has no bit there any more, tells the owner so, who looks
 * at the slot. A hint that is lost by a kill or by damage costs time and nothing else. The leaving
 * holder calls _hint(); the owner calls _hinted(), which takes a word of 64 slots' hints, [64 *
 * word, …).
 */
void shms_segment_hint(const struct shms_segment *g, uint32_t slot);
uint64_t shms_segment_hinted(const struct shms_segment *g, uint32_t word);

/*
 * An object in a slot: its description, 32 bytes in the slot, and the contents of its
 * extent (docs/segments.md "An extent"). Pure.
 *
 *   extent   buffers, each 64-byte aligned; then, 8-byte aligned: the table (their number and
 *            sizes), unless there is exactly one buffer; the checksum; the metadata; a key
 *            that does not fit into the slot
 *
 * Extents of 64 KiB and more begin at a page, so that a large first buffer does.
 */

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
