/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segrecover.c: recovers a holder, slot by slot, one access after the other. All of it may be done
 * twice.
 *
 * A kept store's names stay. One of them may be wrong: an adopt set the bit on a slot that had
 * become another object's, and its process was killed before it looked. The store's intent says
 * which object was meant. If the owner is looking at the slot (CLOSING), it may have read the bits
 * before that name was there. So the state is changed back first; then the name counts.
 */
#include "segrecover.h"

#include "segpacked.h"

static void settle_intent(const struct shms_segment *g, unsigned holder, uint64_t intent)
{
	uint32_t generation = shms_segintent_generation(intent), index = (uint32_t)intent;
	struct shms_segslot slot;

	/* No honest store meant such a slot, and none of its bits can be there. */
	if (index >= shms_segment_born(g))
		return;
	slot = shms_segslot_at(g, index);
	shms_segword_cas(slot.state, shms_segstate_make(SHMS_SEG_CLOSING, generation),
			 shms_segstate_make(SHMS_SEG_SEALED, generation));
	if (shms_segword_is(slot.state, SHMS_SEGSTATE_PUBLISHED,
			    shms_segstate_make(SHMS_SEG_SEALED, generation)))
		return;
	if (shms_segword_clear(shms_segslot_word(&slot, holder), shms_segholder_name(holder)))
		shms_segment_hint(g, index);
}

/*
 * Settles a slot of a dead owner. Others only change CLOSING to SEALED, and leases. Returns true if
 * the slot has no object.
 */
static bool settle_owner(const struct shms_segslot *slot)
{
	uint64_t word = shms_segword_part(slot->state, SHMS_SEGSTATE_WHAT);
	uint32_t generation = shms_segstate_generation(word);

	if (shms_segstate_of(word) == SHMS_SEG_WRITING)
		shms_segword_cas(slot->state, word, shms_segstate_make(SHMS_SEG_FREE, generation));
	if (shms_segstate_of(word) == SHMS_SEG_CLOSING)
		shms_segword_cas(slot->state, word,
				 shms_segstate_make(SHMS_SEG_SEALED, generation));
	return !shms_segstate_published(word);
}

void shms_segment_recover(const struct shms_segment *g, unsigned holder, bool kept)
{
	struct shms_segrecord *record = shms_segment_record(g, holder);
	uint64_t both = shms_segholder_name(holder) | shms_segholder_view(holder);
	uint64_t given = kept ? shms_segholder_view(holder) : both;
	uint64_t intent = shms_segword_load(&record->intent);
	uint32_t n_slots = shms_segment_born(g);

	if (kept && (intent & SHMS_SEGINTENT_SET))
		settle_intent(g, holder, intent);
	if (intent)
		shms_segword_store(&record->intent, 0);
	for (uint32_t i = 0; i < n_slots; i++) {
		struct shms_segslot slot = shms_segslot_at(g, i);
		/* An unfinished put leaves a name without an object, also if the store is kept. */
		bool none = holder == SHMS_SEG_OWNER && settle_owner(&slot);

		if (!shms_segword_part(shms_segslot_word(&slot, holder), both))
			continue;
		if (shms_segword_clear(shms_segslot_word(&slot, holder), none ? both : given) &&
		    !none)
			shms_segment_hint(g, i);
	}
}

/* Is that slot, which the holder has by name, an alias? */
static bool is_alias(const struct shms_segslot *slot, unsigned holder)
{
	return holder == SHMS_SEG_OWNER && (shms_segpacked_flags_of(slot) & SHMS_SEGPACKED_ALIAS);
}

void shms_segment_forget_objects(const struct shms_segment *g, unsigned holder)
{
	uint64_t name = shms_segholder_name(holder);
	uint32_t n_slots = shms_segment_born(g);

	for (uint32_t i = 0; i < n_slots; i++) {
		struct shms_segslot slot = shms_segslot_at(g, i);

		if (!shms_segword_part(shms_segslot_word(&slot, holder), name) ||
		    is_alias(&slot, holder))
			continue;
		if (shms_segword_clear(shms_segslot_word(&slot, holder), name))
			shms_segment_hint(g, i);
	}
}

bool shms_segment_has_alias(const struct shms_segment *g, unsigned holder)
{
	uint64_t name = shms_segholder_name(holder);
	uint32_t n_slots = holder == SHMS_SEG_OWNER ? shms_segment_born(g) : 0;

	for (uint32_t i = 0; i < n_slots; i++) {
		struct shms_segslot slot = shms_segslot_at(g, i);

		if (shms_segword_part(shms_segslot_word(&slot, holder), name) &&
		    is_alias(&slot, holder))
			return true;
	}
	return false;
}
