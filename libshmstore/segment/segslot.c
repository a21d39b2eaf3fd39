/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segslot.c: put, free, delete and the last unref, one access after the other.
 *
 * Every reference is a bit that its holder alone sets and clears. So a process that clears the bits
 * of a dead one need not know how far that came. Rejected: counts (after a kill between the count
 * and the deed nobody knows which is right); a lock (a stopped holder stops all).
 *
 * free() frees nothing that a holder has: the owner alone sets CLOSING, from a state without
 * leases, and a process that takes a lease or a pin from then on changes CLOSING back. If CLOSING
 * stands at the last cas, no reference was added meanwhile; bits only went, so that the words may
 * be read one after the other.
 */
#include "segslot.h"

int shms_segslot_begin(const struct shms_segslot *slot, uint32_t *ret_generation)
{
	uint64_t word = shms_segword_load(slot->state);
	uint32_t generation = (shms_segstate_generation(word) + 1) & SHMS_SEG_GENERATION;

	if (shms_segstate_of(word) != SHMS_SEG_FREE)
		return -EBADMSG;
	shms_segword_store(slot->state, shms_segstate_make(SHMS_SEG_WRITING, generation));
	/* A process that sees a byte of the new object sees that the old one is gone. */
	shms_segword_fence();
	*ret_generation = generation;
	return 0;
}

void shms_segslot_publish(const struct shms_segslot *slot, uint32_t generation)
{
	/* A kill here leaves WRITING, with a bit that recovery clears. */
	shms_segword_or(&slot->holders[0], shms_segholder_name(SHMS_SEG_OWNER));
	shms_segword_store(slot->state, shms_segstate_make(SHMS_SEG_SEALED, generation));
}

void shms_segslot_abandon(const struct shms_segslot *slot, uint32_t generation)
{
	shms_segword_store(slot->state, shms_segstate_make(SHMS_SEG_FREE, generation));
}

bool shms_segslot_held(const struct shms_segslot *slot)
{
	for (uint32_t i = 0; i < slot->n_words; i++) {
		if (!shms_segword_is(&slot->holders[i], UINT64_MAX, 0))
			return true;
	}
	return false;
}

bool shms_segslot_free(const struct shms_segslot *slot, uint32_t now)
{
	uint64_t word = shms_segword_load(slot->state);
	uint32_t generation = shms_segstate_generation(word);
	uint64_t closing = shms_segstate_make(SHMS_SEG_CLOSING, generation);

	/* A process that makes the cas fail has a reference, and sets the hint when it leaves:
	 * one try is enough. */
	if (shms_segstate_of(word) != SHMS_SEG_SEALED || shms_segstate_promised(word, now))
		return false;
	if (!shms_segword_cas(slot->state, word, closing))
		return false;
	if (shms_segslot_held(slot)) {
		shms_segword_cas(slot->state, closing,
				 shms_segstate_make(SHMS_SEG_SEALED, generation));
		return false;
	}
	return shms_segword_cas(slot->state, closing,
				shms_segstate_make(SHMS_SEG_FREE, generation));
}

unsigned shms_segslot_expire(const struct shms_segslot *slot, uint32_t now)
{
	uint64_t word = shms_segword_load(slot->state);
	uint32_t leases = shms_segstate_leases(word);

	if (shms_segstate_of(word) != SHMS_SEG_SEALED || !leases ||
	    shms_segstate_promised(word, now))
		return 0;
	/* One more lease, or one less, is somebody at work here: the next gc looks again. */
	if (!shms_segword_cas(slot->state, word,
			      shms_segstate_make(SHMS_SEG_SEALED, shms_segstate_generation(word))))
		return 0;
	return (unsigned)__builtin_popcount(leases);
}

bool shms_segslot_drop(const struct shms_segslot *slot, unsigned holder, enum shms_segviews views)
{
	struct shms_segword *word = shms_segslot_word(slot, holder);

	if (views == SHMS_SEGVIEWS_LIVE) {
		/* Both bits in one access: there is no moment without a bit. */
		shms_segword_flip(word, shms_segholder_name(holder) | shms_segholder_view(holder));
		return false;
	}
	return shms_segword_clear(word, shms_segholder_name(holder));
}

bool shms_segslot_unview(const struct shms_segslot *slot, unsigned holder)
{
	return shms_segword_clear(shms_segslot_word(slot, holder), shms_segholder_view(holder));
}
