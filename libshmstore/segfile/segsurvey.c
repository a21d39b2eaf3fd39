/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segsurvey.c: one pass over the copies of the slots. Of an object with a table, the number of
 * buffers is read from its extent; the slot is copied again then, and all is repeated where its
 * generation has changed.
 */
#include "segsurvey.h"

#include <string.h>

#include "hostpage.h"

#define TRIES 8

struct seen {
	uint64_t state;
	bool view;
	bool ours; /* the store that was asked for has it by name */
	uint32_t n_names;
	int error;
	uint64_t bytes;
	/* an alias that takes the place of its object's own key: the two are one key */
	bool instead;
	struct shms_segpacked object;
};

static struct seen look(const struct shms_seglook *l, uint32_t i, unsigned ours)
{
	const struct shms_segment *g = &l->segment;
	struct shms_segslot slot = shms_segslot_at(g, i);
	struct seen seen = {0};

	for (int tries = 0; tries < TRIES; tries++) {
		seen = (struct seen){.state = shms_segword_load(slot.state)};
		for (uint32_t w = 0; w < slot.n_words; w++) {
			uint64_t bits = shms_segword_load(&slot.holders[w]);

			seen.n_names +=
				(uint32_t)__builtin_popcountll(bits & UINT64_C(0x5555555555555555));
			seen.view = seen.view || (bits & UINT64_C(0xaaaaaaaaaaaaaaaa));
		}
		seen.ours = ours < shms_segment_holders(g) && shms_segslot_named(&slot, ours);
		seen.error = shms_segpacked_read(g, &slot, &seen.object);
		if (seen.error == 0)
			seen.bytes = shms_segsurvey_bytes(&seen.object);
		seen.instead = seen.error == 0 && (seen.object.flags & SHMS_SEGPACKED_INSTEAD);
		if ((seen.error == 0 && !(seen.object.flags & SHMS_SEGPACKED_TABLE)) ||
		    shms_seglook_again(l, i) < 0 ||
		    (shms_segword_load(slot.state) & SHMS_SEGSTATE_WHAT) ==
			    (seen.state & SHMS_SEGSTATE_WHAT))
			break;
	}
	return seen;
}

static bool is_ghost(const struct seen *seen, bool promised)
{
	return shms_segstate_published(seen->state) && seen->error == 0 && seen->view &&
	       !seen->n_names && !promised;
}

/* Its bytes are known, too. */
static bool is_inflight(const struct seen *seen)
{
	return shms_segstate_of(seen->state) == SHMS_SEG_WRITING && seen->error == 0;
}

/* Adds the pages that an object has bytes of, each once: extents come in
 * the order of their slots. */
static void add_pages(const struct seen *seen, uint64_t *io_end, uint64_t *io_bytes)
{
	uint64_t from = seen->object.extent_off & ~(shms_host_page() - 1);
	uint64_t end = shms_whole_pages(seen->object.extent_off + seen->bytes);

	from = from > *io_end ? from : *io_end;
	if (end > from) {
		*io_bytes += end - from;
		*io_end = end;
	}
}

static void add_named(const struct seen *seen, bool promised, struct shms_segsurvey *s)
{
	s->n_named += !seen->instead;
	s->n_aliases += (seen->object.flags & SHMS_SEGPACKED_ALIAS) != 0;
	s->named_bytes += seen->bytes;
	s->shared += (seen->bytes << SHMS_SHARE_SHIFT) / seen->n_names;
	s->own_bytes += seen->n_names == 1 && !promised ? seen->bytes : 0;
}

unsigned shms_segment_place(const struct shms_segment *g, const uint8_t store[16])
{
	for (unsigned h = 0; h < shms_segment_holders(g); h++) {
		struct shms_segrecord *record = shms_segment_record(g, h);

		/* In one that is ACTIVE there are objects of a store that was taken apart, as long
		 * as a child keeps it locked. */
		if (shms_segword_is(&record->state, UINT64_MAX, SHMS_SEGRECORD_KEPT) &&
		    memcmp(record->store_uuid, store, sizeof(record->store_uuid)) == 0)
			return h;
	}
	return SHMS_SEGMENT_NO_PLACE;
}

void shms_segsurvey(const struct shms_seglook *l, const uint8_t store[16], uint64_t now_ms,
		    struct shms_segsurvey *ret)
{
	const struct shms_segment *g = &l->segment;
	uint32_t n = shms_segment_born(g), now = shms_segnow_of_ms(now_ms);
	unsigned ours = shms_segment_place(g, store);
	struct shms_segsurvey s = {.is_owner = ours == SHMS_SEG_OWNER};
	uint64_t used = 0, pages = 0, pages_end = 0, over;

	for (uint32_t i = 0; i < n; i++) {
		struct seen seen = look(l, i, ours);
		bool promised = shms_segstate_promised(seen.state, now);

		s.n_leases +=
			promised ? (uint32_t)__builtin_popcount(shms_segstate_leases(seen.state))
				 : 0;
		if (shms_segstate_of(seen.state) == SHMS_SEG_WRITING) {
			/* its description is the one before: its extent is none of the others' */
			s.n_inflight++;
		} else if (shms_segstate_published(seen.state) && seen.error < 0) {
			s.n_bad++;
		} else if (shms_segstate_published(seen.state) && (seen.n_names || promised)) {
			s.n_linked++;
			s.linked_bytes += seen.bytes;
			if (seen.ours)
				add_named(&seen, promised, &s);
		} else if (is_ghost(&seen, promised)) {
			s.n_ghosts++;
			s.ghosts_bytes += seen.bytes;
		}
		if (is_inflight(&seen))
			s.inflight_bytes += seen.bytes;
		if (s.linked_bytes + s.ghosts_bytes + s.inflight_bytes > used)
			add_pages(&seen, &pages_end, &pages);
		used = s.linked_bytes + s.ghosts_bytes + s.inflight_bytes;
	}
	for (unsigned h = 0; h < shms_segment_holders(g); h++) {
		uint64_t state = shms_segword_load(&shms_segment_record(g, h)->state);

		s.n_places += state == SHMS_SEGRECORD_ACTIVE || state == SHMS_SEGRECORD_KEPT;
	}
	/* A put takes its slot first and memory then: it may have less than the slot says. */
	over = used > l->n_blocks ? used - l->n_blocks : 0;
	s.inflight_bytes -= over < s.inflight_bytes ? over : s.inflight_bytes;
	s.pool_bytes = l->n_blocks > used ? l->n_blocks - used : 0;
	s.stranded_bytes = pages > used ? pages - used : 0;
	if (s.stranded_bytes > s.pool_bytes)
		s.stranded_bytes = s.pool_bytes;
	*ret = s;
}

int shms_segsurvey_unnamed(const struct shms_seglook *l, uint64_t now_ms,
			   int (*fn)(const struct shms_segunnamed *o, void *arg), void *arg)
{
	uint32_t n = shms_segment_born(&l->segment), now = shms_segnow_of_ms(now_ms);
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < n; i++) {
		struct seen seen = look(l, i, SHMS_SEGMENT_NO_PLACE);
		const struct shms_segunnamed o = {.slot = i,
						  .generation =
							  shms_segstate_generation(seen.state),
						  .inflight = is_inflight(&seen),
						  .bytes = seen.bytes,
						  .object = &seen.object};

		if (o.inflight || is_ghost(&seen, shms_segstate_promised(seen.state, now)))
			r = fn(&o, arg);
	}
	return r;
}
