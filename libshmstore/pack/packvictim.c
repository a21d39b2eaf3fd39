/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packvictim.c: which packed objects may leave memory. Slots are taken in their order, since that of a segment is by and large the order in
 * which its objects were put, and neighbours free whole pages together. Nothing says when an object was used last: to write that down would
 * cost each get more than the get itself.
 */
#include <errno.h>

#include "packalias.h"
#include "packfork.h"
#include "segslot.h"

/* What goes must free memory that this process can give back: the segment is the store's own, and nobody else has the object, nor has it a key
 * that would have to go with it. */
static bool may_go(const struct shms_pack *p, struct shms_packplace place)
{
	const struct shms_packseg *g = &p->segments[place.segment];
	struct shms_segslot s = shms_packseg_slot(g, place.slot);
	uint64_t state = shms_segword_load(s.state);

	if (g->views[place.slot] || !shms_segstate_published(state) || shms_segstate_leases(state) ||
	    (shms_segpacked_flags_of(&s) & SHMS_SEGPACKED_ALIAS) || shms_packalias_is_aliased(p, place))
		return false;
	for (uint32_t w = 0; w < s.n_words; w++) {
		if (shms_segword_load(&s.holders[w]) != (w ? 0 : shms_segholder_name(SHMS_SEG_OWNER)))
			return false;
	}
	return true;
}

/* Looks at the rest of one segment, from io->slot on. */
static bool find(struct shms_pack *p, struct shms_packcursor *io, struct shms_pack_view *ret)
{
	struct shms_packseg *g = &p->segments[io->segment];
	uint32_t n = g->own ? shms_segment_born(&g->file->segment) : 0;

	while (io->slot < n) {
		struct shms_packplace place = {io->segment, io->slot++};

		if (!may_go(p, place) || shms_pack_describe(p, place, ret) < 0)
			continue;
		shms_packseg_view(g, place.slot);
		return true;
	}
	return false;
}

int shms_pack_victim(struct shms_pack *p, struct shms_packcursor *io, struct shms_pack_view *ret)
{
	int r = -ENOENT;

	/* Segment by segment, so that other threads need not wait for all of them. */
	while (r == -ENOENT) {
		shms_lightlock_take(&p->lock);
		if (p->child || atomic_load_explicit(&p->retired, memory_order_relaxed) ||
		    io->segment >= p->n_segments) {
			shms_lightlock_release(&p->lock);
			return -ENOENT;
		}
		if (find(p, io, ret))
			r = 0;
		else
			*io = (struct shms_packcursor){.segment = io->segment + 1};
		shms_lightlock_release(&p->lock);
	}
	return r;
}
