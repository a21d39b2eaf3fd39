/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packvictim.c: which packed objects may leave memory.
 *
 * A hand goes around over the slots, segment by segment, and stays where the last search ended (the
 * clock algorithm). An object that was got since the hand came by loses the flag that says so, and
 * stays; the next one that has none goes. The flags are bits, 512 slots of them in a cache line, so
 * that they cost a get next to nothing. A new object has none: the hand has just passed the slots
 * that were free, so that its turn comes last. Neighbours free whole pages together.
 */
#include <errno.h>

#include "packsegs.h"

/* An object that goes frees memory that this process can give back only if the
 * segment is the store's own. */
bool shms_packvictim_may_go(const struct shms_pack *p, struct shms_packplace place, uint32_t now)
{
	const struct shms_packseg *g = &p->segments[place.segment];
	struct shms_segslot s = shms_packseg_slot(g, place.slot);
	uint64_t state = shms_segword_load(s.state);

	if (shms_packviews_find(&p->views, place) || !shms_segstate_published(state) ||
	    shms_segstate_promised(state, now) ||
	    (shms_segpacked_flags_of(&s) & (SHMS_SEGPACKED_ALIAS | SHMS_SEGPACKED_PINNED)) ||
	    shms_packalias_is_aliased(p, place))
		return false;
	for (uint32_t w = 0; w < s.n_words; w++) {
		if (shms_segword_load(&s.holders[w]) !=
		    (w ? 0 : shms_segholder_name(SHMS_SEG_OWNER)))
			return false;
	}
	return true;
}

/* True: it was used since the hand came by. */
static bool second_chance(struct shms_packseg *g, uint32_t slot)
{
	bool used = g->used[slot / 8] >> slot % 8 & 1;

	shms_packseg_unuse(g, slot);
	return used;
}

static uint32_t n_slots(const struct shms_packseg *g)
{
	return g->own ? shms_segment_born(&g->file->segment) : 0;
}

/* Looks at the rest of the segment at the hand. */
static bool find(struct shms_pack *p, struct shms_packsearch *io, struct shms_pack_view *ret)
{
	struct shms_packseg *g = &p->segments[p->hand.segment];
	uint32_t n = n_slots(g);

	while (p->hand.slot < n && io->left) {
		struct shms_packplace place = p->hand;

		p->hand.slot++;
		io->left--;
		if (shms_packvictim_may_go(p, place, io->now) && !second_chance(g, place.slot) &&
		    shms_pack_view(p, place, ret) == 0)
			return true;
	}
	return false;
}

static void next_segment(struct shms_pack *p)
{
	p->hand.slot = 0;
	p->hand.segment = p->hand.segment + 1 < p->n_segments ? p->hand.segment + 1 : 0;
}

struct shms_packsearch shms_pack_search(struct shms_pack *p, uint64_t now_ms)
{
	struct shms_packsearch s = {.now = shms_segnow_of_ms(now_ms)};

	SHMS_LIGHT_HELD(&p->lock);
	SHMS_PACKSEGS_EACH(p, g)
		s.left += 2 * (uint64_t)n_slots(g);
	return s;
}

int shms_pack_victim(struct shms_pack *p, struct shms_packsearch *io, struct shms_pack_view *ret)
{
	bool found = false, over = false;

	/* Segment by segment, so that other threads need not wait for all of them. */
	while (!found && !over) {
		shms_lightlock_take(&p->lock);
		over = p->child || atomic_load_explicit(&p->retired, memory_order_relaxed) ||
		       !io->left;
		found = !over && find(p, io, ret);
		if (!found && !over)
			next_segment(p);
		shms_lightlock_release(&p->lock);
	}
	return found ? 0 : -ENOENT;
}

int shms_pack_pin(struct shms_pack *p, const void *key, size_t key_size, bool pin)
{
	struct shms_packplace place;
	struct shms_segslot slot;
	int r = -ENOENT;
	bool is;

	SHMS_LIGHT_HELD(&p->lock);
	if (shms_pack_find_object(p, key, key_size, &place)) {
		slot = shms_packseg_slot(&p->segments[place.segment], place.slot);
		is = (shms_segpacked_flags_of(&slot) & SHMS_SEGPACKED_PINNED) != 0;
		r = is == pin || p->segments[place.segment].own ? 0 : -EXDEV;
		if (r == 0 && is != pin)
			shms_segpacked_flag(&slot, SHMS_SEGPACKED_PINNED, pin);
	}
	return r;
}
