/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segalloc.h: chooses the slot and the extent of the owner's next object. All of it is the owner's
 * private memory. Of what others can write it reads hints, and descriptions when it takes a kept
 * segment over. The caller has one lock around all of it.
 *
 * A slot is cut once, with an extent of its class behind the last one cut, and keeps that extent.
 * Free slots of a class are a stack: the slot that was freed last is used first, since its bytes
 * are in the cache.
 */
#ifndef SHMS_SEGALLOC_H
#define SHMS_SEGALLOC_H

#include <stdbool.h>
#include <stdint.h>

#include "segment.h"

/*
 * Of each slot that was cut: its extent's place, its class, and, while it lies on its class's
 * stack, the slot below.
 */
struct shms_segextent {
	uint32_t extent; /* offset in the file / 64 */
	uint32_t below : 24;
	uint32_t class : 8;
};

struct shms_segalloc {
	const struct shms_segment *segment;
	struct shms_segextent *slots; /* [n_slots of the shape] */
	uint16_t *pages; /* of each slot with a large extent: what its last object took */
	uint64_t used;   /* bytes of the objects in slots that are not free */
	uint8_t *free;   /* a bit for each slot: it lies on a stack */
	uint32_t stacks[SHMS_SEGCLASSES]; /* the topmost slot; NONE */
	uint32_t n_born;
	uint32_t n_free;
	uint32_t hints_seen; /* control's n_hints when hints were looked at last */
	uint64_t end_off;    /* of the last extent cut */
};

/* For a new segment. 0, -ENOMEM. */
int shms_segalloc_init(struct shms_segalloc *a, const struct shms_segment *segment);
/*
 * For a segment whose owner is gone, after its recovery and init(): takes over what its slots say,
 * if it can be true (extents lie in the data, and none overlaps another). Slots of which it cannot
 * be true have extent 0, and are never used again. 0, -ENOMEM.
 */
int shms_segalloc_rebuild(struct shms_segalloc *a);
void shms_segalloc_deinit(struct shms_segalloc *a);

/*
 * Takes a free slot for an object of that class: from the stack; if that is empty, from the stack
 * after a look at the hints; else a slot that is cut now. It is FREE, and no other holder's. now:
 * segnow_of_ms(). 0; -ENOSPC: there is none, unless a scan finds one.
 */
int shms_segalloc_take(struct shms_segalloc *a, uint8_t class, uint32_t now, uint32_t *ret_slot);
/* Is there a slot of that class that was used before, after a look at the hints if need be? */
bool shms_segalloc_has(struct shms_segalloc *a, uint8_t class, uint32_t now);
/* Where in the file the slot's extent begins and ends. Begins are 0 for
 * slots that rebuild() gave up. */
static inline uint64_t shms_segalloc_begin(const struct shms_segalloc *a, uint32_t slot)
{
	return (uint64_t)a->slots[slot].extent * SHMS_SEGCLASS_ALIGN;
}
static inline uint64_t shms_segalloc_end(const struct shms_segalloc *a, uint32_t slot)
{
	return shms_segalloc_begin(a, slot) + shms_segclass_size((uint8_t)a->slots[slot].class);
}
static inline bool shms_segalloc_is_free(const struct shms_segalloc *a, uint32_t slot)
{
	return a->free[slot / 8] >> slot % 8 & 1;
}

/* The slot that was just taken gets an object of so many bytes, table, metadata and all. */
void shms_segalloc_fill(struct shms_segalloc *a, uint32_t slot, uint64_t used);
/* Takes each free slot of that class whose bit is set, wherever on the stack it lies. */
void shms_segalloc_pick(struct shms_segalloc *a, uint8_t class, const uint8_t *picked);
/* Puts a slot on its stack, which shms_segslot_free() or _abandon() made FREE. */
void shms_segalloc_give(struct shms_segalloc *a, uint32_t slot);
/*
 * hints: takes back the slots of which hints say that others left them. scan: takes back all that
 * can be had, with or without a hint. Both return the number of slots.
 */
uint32_t shms_segalloc_hints(struct shms_segalloc *a, uint32_t now);
uint32_t shms_segalloc_scan(struct shms_segalloc *a, uint32_t now);

#endif
