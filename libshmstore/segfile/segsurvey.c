/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segsurvey.c: one pass over the slots. It reads a slot's state, then the bits and the description,
 * then the state again, and repeats that where the generation has changed. Large extents are
 * counted as far as their objects reach, since the rest of their last pages may never have been
 * written.
 */
#include "segsurvey.h"

#include "segclass.h"
#include "segpacked.h"

#define TRIES 8

struct seen {
	uint64_t state;
	bool name, view;
	int error;
	uint64_t bytes;
};

static uint64_t bytes_of(const struct shms_segpacked *o)
{
	if (o->extent_size < SHMS_SEGCLASS_BIG)
		return o->extent_size;
	return (o->used + SHMS_SEGMENT_PAGE - 1) / SHMS_SEGMENT_PAGE * SHMS_SEGMENT_PAGE;
}

static struct seen look(const struct shms_segment *g, uint32_t i)
{
	struct shms_segslot slot = shms_segslot_at(g, i);
	struct shms_segpacked o;
	struct seen seen = {0};

	for (int tries = 0; tries < TRIES; tries++) {
		seen = (struct seen){.state = shms_segword_load(slot.state)};
		for (uint32_t w = 0; w < slot.n_words; w++) {
			uint64_t bits = shms_segword_load(&slot.holders[w]);

			seen.name = seen.name || (bits & UINT64_C(0x5555555555555555));
			seen.view = seen.view || (bits & UINT64_C(0xaaaaaaaaaaaaaaaa));
		}
		seen.error = shms_segpacked_read(g, &slot, &o);
		if (seen.error == 0)
			seen.bytes = bytes_of(&o);
		if ((shms_segword_load(slot.state) & SHMS_SEGSTATE_WHAT) == (seen.state & SHMS_SEGSTATE_WHAT))
			break;
	}
	return seen;
}

void shms_segsurvey(const struct shms_seglook *l, uint64_t now_ms, struct shms_segsurvey *ret)
{
	const struct shms_segment *g = &l->segment;
	uint32_t n = shms_segment_born(g), now = shms_segnow_of_ms(now_ms);
	struct shms_segsurvey s = {0};
	uint64_t used;

	for (uint32_t i = 0; i < n; i++) {
		struct seen seen = look(g, i);
		bool promised = shms_segstate_promised(seen.state, now);

		s.n_leases += promised ? (uint32_t)__builtin_popcount(shms_segstate_leases(seen.state)) : 0;
		if (shms_segstate_of(seen.state) == SHMS_SEG_WRITING) {
			s.n_inflight++; /* its description is the one before: its extent is none of the others' */
		} else if (shms_segstate_published(seen.state) && seen.error < 0) {
			s.n_bad++;
		} else if (shms_segstate_published(seen.state) && (seen.name || promised)) {
			s.n_linked++;
			s.linked_bytes += seen.bytes;
		} else if (shms_segstate_published(seen.state) && seen.view) {
			s.n_ghosts++;
			s.ghosts_bytes += seen.bytes;
		}
		if (shms_segstate_of(seen.state) == SHMS_SEG_WRITING && seen.error == 0)
			s.inflight_bytes += seen.bytes;
	}
	for (unsigned h = 0; h < shms_segment_holders(g); h++) {
		uint64_t state = shms_segword_load(&shms_segment_record(g, h)->state);

		s.n_places += state == SHMS_SEGRECORD_ACTIVE || state == SHMS_SEGRECORD_KEPT;
	}
	used = s.linked_bytes + s.ghosts_bytes + s.inflight_bytes;
	s.pool_bytes = l->n_blocks > used ? l->n_blocks - used : 0;
	*ret = s;
}
