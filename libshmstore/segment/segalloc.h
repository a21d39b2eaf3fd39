/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segalloc.h: which slot and extent of a segment the owner's next object gets. The owner's private memory: of what others can write it reads
 * hints, and, when it takes a kept segment over, descriptions. One lock of the caller's around all of it.
 *
 * A slot is cut once, with an extent of its class behind the last one cut, and keeps it. Free slots of a class are a stack: last freed, first
 * used, since its bytes are in the cache.
 */
#ifndef SHMS_SEGALLOC_H
#define SHMS_SEGALLOC_H

#include <stdbool.h>
#include <stdint.h>

#include "segclass.h"
#include "segment.h"

/* Of each slot that was cut: where its extent is, its class, and, while it lies on its class's stack, the slot below. */
struct shms_segextent {
	uint32_t extent; /* offset in the file / 64 */
	uint32_t below : 24;
	uint32_t class : 8;
};

struct shms_segalloc {
	const struct shms_segment *segment;
	struct shms_segextent *slots;     /* [n_slots of the shape] */
	uint8_t *free;                    /* a bit for each slot: it lies on a stack */
	uint32_t stacks[SHMS_SEGCLASSES]; /* the topmost slot; NONE */
	uint32_t n_born;
	uint32_t n_free;
	uint32_t hints_seen; /* control's n_hints when hints were looked at last */
	uint64_t end_off;    /* of the last extent cut */
};

/* A new segment's. 0, -ENOMEM. */
int shms_segalloc_init(struct shms_segalloc *a, const struct shms_segment *segment);
/*
 * A segment's whose owner is gone, after its recovery: what its slots say, if it can be true: extents in the data, none over another. *ret_bad:
 * slots that cannot; they are never used again. 0, -ENOMEM. Before: init().
 */
int shms_segalloc_rebuild(struct shms_segalloc *a, uint32_t *ret_bad);
void shms_segalloc_deinit(struct shms_segalloc *a);

/*
 * A free slot for an object of that class: of the stack; else, after a look at the hints, of the stack; else one cut anew. It is FREE and
 * nobody's. now: segnow_of_ms(). *ret_fresh: it was cut now, so that its memory was never written; end_off says how far the file is to be
 * backed. 0; -ENOSPC: none, unless a scan finds one.
 */
int shms_segalloc_take(struct shms_segalloc *a, uint8_t class, uint32_t now, uint32_t *ret_slot, bool *ret_fresh);
static inline uint32_t shms_segalloc_extent(const struct shms_segalloc *a, uint32_t slot)
{
	return a->slots[slot].extent;
}

/* The slot is FREE: by shms_segslot_free() or _abandon(). Onto its stack. */
void shms_segalloc_give(struct shms_segalloc *a, uint32_t slot);
/* Takes back what others left, as far as hints tell; all that is to be had, hint or not. Each says how many slots. */
uint32_t shms_segalloc_hints(struct shms_segalloc *a, uint32_t now);
uint32_t shms_segalloc_scan(struct shms_segalloc *a, uint32_t now);

#endif
