/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segsurvey.h: says by a segment's slots what its memory is used for. Needs no owner, and changes
 * nothing.
 */
#ifndef SHMS_SEGSURVEY_H
#define SHMS_SEGSURVEY_H

#include <stdint.h>

#include "segclass.h"
#include "seglook.h"
#include "segpacked.h"

/*
 * The memory that the object's extent is said to take. Of large extents, which begin at a page, the
 * rest of the last pages may never have been written.
 */
static inline uint64_t shms_segsurvey_bytes(const struct shms_segpacked *o)
{
	if (o->extent_size < SHMS_SEGCLASS_BIG)
		return o->extent_size;
	return (o->used + SHMS_SEGMENT_PAGE - 1) / SHMS_SEGMENT_PAGE * SHMS_SEGMENT_PAGE;
}

/* A store's share of memory is summed in so small parts that those of all stores add up to the
 * whole but for a byte each. */
#define SHMS_SHARE_SHIFT 16

#define SHMS_SEGMENT_NO_PLACE UINT32_MAX
/* The place of the store of that uuid, alive or not, unless the store was taken apart. */
unsigned shms_segment_place(const struct shms_segment *g, const uint8_t store[16]);

/* Bytes of extents; linked + ghosts + inflight + pool = the segment's memory. */
struct shms_segsurvey {
	uint64_t n_linked, linked_bytes;     /* objects with a name or a lease */
	uint64_t n_ghosts, ghosts_bytes;     /* with views only */
	uint64_t n_inflight, inflight_bytes; /* being put */
	uint64_t pool_bytes;     /* the rest: books, free extents, what was allocated ahead */
	uint64_t stranded_bytes; /* the part of pool in pages that objects have the rest of */
	uint32_t n_leases;       /* that have not ended */
	uint32_t n_places;       /* holders */
	/* Of the store that was asked for. */
	uint64_t n_named, named_bytes; /* objects that it has by name */
	uint64_t shared;    /* their bytes / names, summed, in 1 / 2^SHMS_SHARE_SHIFT bytes */
	uint64_t own_bytes; /* of those that have no other name and no lease */
	uint32_t n_aliases; /* further keys, as slots */
	bool is_owner;
	uint32_t n_bad; /* slots that say what cannot be */
};

/*
 * store: the uuid of a store, of which there may be none here. If the segment changes meanwhile,
 * each slot is reported as it was at one moment.
 */
void shms_segsurvey(const struct shms_seglook *l, const uint8_t store[16], uint64_t now_ms,
		    struct shms_segsurvey *ret);

/*
 * An object that nobody has by name, or was promised: somebody has views of it, and the slot's
 * holder words say who; or the owner is putting it. Then the description may be of what the slot
 * had before, of which its bytes are right.
 */
struct shms_segunnamed {
	uint32_t slot, generation;
	bool inflight;
	uint64_t bytes;
	const struct shms_segpacked *object;
};
/* Calls fn for each, until fn returns another value than 0, which is returned. */
int shms_segsurvey_unnamed(const struct shms_seglook *l, uint64_t now_ms,
			   int (*fn)(const struct shms_segunnamed *o, void *arg), void *arg);

#endif
