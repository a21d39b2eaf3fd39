/* SPDX-License-Identifier: Apache-2.0 */
/* segments.h: segments in ordinary memory, for tests of the protocol. */
#ifndef SEGMENTS_H
#define SEGMENTS_H

#include <stdlib.h>
#include <string.h>

#include "scratch.h"
#include "segalloc.h"
#include "seglook.h"
#include "segment.h"
#include "segslot.h"

/* A segment that is in no file: free(g->books) is its end. */
static inline struct shms_segment segment_in_memory(uint32_t n_slots, uint32_t n_holders,
						    uint64_t size)
{
	static const uint8_t uuid[16] = "a segment's uuid", owner[16] = "an owner's uuid.";
	struct shms_segment_shape shape;
	struct shms_segment_header header;
	struct shms_segment g = {0};
	uint8_t *memory;

	ENSURE(shms_segment_shape(n_slots, n_holders, size, &shape) == 0);
	memory = aligned_alloc(4096, size);
	ENSURE(memory);
	memset(memory, 0, size);
	shms_segment_header(&shape, uuid, owner, &header);
	memcpy(memory, &header, sizeof(header));
	ENSURE(shms_segment_check(&header, size, &g) == 0);
	g.books = memory;
	g.bytes = memory;
	return g;
}

/* Puts one buffer of size bytes of that content under the key "k" into the slot that the allocator
 * gives. Its number, and its generation. */
static inline uint32_t segment_put(struct shms_segalloc *a, uint64_t size, int content,
				   uint32_t *ret_generation)
{
	struct shms_segpacked o;
	struct shms_segslot slot;
	uint32_t index = 0;

	ENSURE(shms_segpacked_plan(&size, 1, 0, "k", 1, 0, &o) == 0);
	ENSURE(shms_segalloc_take(a, o.class, 0, &index) == 0);
	slot = shms_segslot_at(a->segment, index);
	ENSURE(shms_segslot_begin(&slot, ret_generation) == 0);
	o.extent_off = shms_segalloc_begin(a, index);
	memset(a->segment->books + o.extent_off, content, size);
	shms_segpacked_write(&slot, &o);
	shms_segslot_publish(&slot, *ret_generation);
	return index;
}

/* As shms_segment_adopt(), and describes the object, which the holder has by name then. */
static inline int segment_adopt(const struct shms_segment *g, unsigned holder, bool kept,
				const struct shms_segticket *t, struct shms_segpacked *ret)
{
	int r = shms_segment_adopt(g, holder, kept, t);
	struct shms_segslot slot;

	if (r < 0)
		return r;
	slot = shms_segslot_at(g, t->slot);
	return shms_segpacked_read(g, &slot, ret);
}

/* Places of segment name of dirfd that some store has. *ret_orphan: it has no owner any more. */
static inline unsigned segment_places(int dirfd, const char *name, bool *ret_orphan)
{
	struct shms_seglook l;
	unsigned n = 0;
	uint64_t state;

	ENSURE(shms_seglook_open(dirfd, name, false, &l) == 0);
	for (unsigned h = 0; h < shms_segment_holders(&l.segment); h++) {
		state = shms_segword_load(&shms_segment_record(&l.segment, h)->state);
		n += state == SHMS_SEGRECORD_ACTIVE || state == SHMS_SEGRECORD_KEPT;
	}
	*ret_orphan = shms_segword_load(&shms_segment_record(&l.segment, SHMS_SEG_OWNER)->state) ==
		      SHMS_SEGRECORD_ORPHAN;
	shms_seglook_close(&l);
	return n;
}

#endif
