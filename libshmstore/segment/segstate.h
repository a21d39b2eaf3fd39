/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segstate.h: the words of a slot (docs/segments.md "A slot"). Pure.
 *
 *   state word   bits 0-1 the state; 2-3 zero; 4-15 a bit for each lease; 16-39 the end of the
 *                last lease; 40-63 the generation. Leases and their end only while SEALED
 *   holder word  bits 2i and 2i + 1 of word w: holder 32 w + i has the object by name; by views
 *                only
 */
#ifndef SHMS_SEGSTATE_H
#define SHMS_SEGSTATE_H

#include <stdbool.h>
#include <stdint.h>

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

#endif
