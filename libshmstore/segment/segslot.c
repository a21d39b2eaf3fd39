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

#include <errno.h>

#include "hexdigits.h"

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

/*
 * ---- handoff, adopt and pin
 *
 * Adopt sets its bit first and takes the lease second, so that the object is never without a
 * reference. Between the two it looks at the state again, since the slot may have become another
 * object's before the bit was set. The bit of a stale ticket delays the slot's owner, and does
 * nothing else. Rejected: the lease first, then the bit (a kill in between, or an owner that looks
 * in between, loses the object).
 */

int shms_segslot_handoff(const struct shms_segslot *slot, uint32_t generation, unsigned from,
			 uint64_t now_ms, uint64_t end_ms, uint32_t *ret_lease)
{
	uint32_t end = shms_segend_of_ms(end_ms);

	if (end_ms > now_ms && end_ms - now_ms > SHMS_SEG_LEASE_MAX_MS)
		return -EINVAL;
	for (unsigned turn = 0; shms_segword_turn(&turn);) {
		uint64_t word = shms_segword_load(slot->state);
		uint32_t taken = shms_segstate_leases(word);
		unsigned lease = from % SHMS_SEG_LEASES;

		if (!shms_segstate_published(word) || shms_segstate_generation(word) != generation)
			return -EBADMSG;
		if (taken == (1u << SHMS_SEG_LEASES) - 1)
			return -EAGAIN;
		while (taken >> lease & 1)
			lease = (lease + 1) % SHMS_SEG_LEASES;
		/* CLOSING: the owner has not seen our name yet, and without this change would
		 * not see this lease. */
		if (shms_segword_cas(slot->state, word, shms_segstate_leased(word, lease, end))) {
			*ret_lease = lease;
			return 0;
		}
	}
	return -EBADMSG;
}

/*
 * The bits that a state with the ticket's lease has in this part of its word. They are never those
 * of CLOSING, which has no lease.
 */
static uint64_t promise(const struct shms_segticket *t)
{
	return shms_segstate_make(SHMS_SEG_SEALED, t->generation) | shms_segstate_lease(t->lease);
}

static uint64_t promise_part(const struct shms_segticket *t)
{
	return SHMS_SEGSTATE_WHAT | shms_segstate_lease(t->lease);
}

int shms_segment_stands(const struct shms_segment *g, const struct shms_segticket *t)
{
	struct shms_segslot slot;

	if (t->slot >= shms_segment_born(g) || t->lease >= SHMS_SEG_LEASES)
		return -EBADMSG;
	slot = shms_segslot_at(g, t->slot);
	return shms_segword_is(slot.state, promise_part(t), promise(t)) ? 0 : -ESTALE;
}

int shms_segment_hold(const struct shms_segment *g, unsigned holder, const struct shms_segticket *t)
{
	int r = shms_segment_stands(g, t);
	struct shms_segword *word;
	struct shms_segslot slot;

	if (r < 0)
		return r;
	slot = shms_segslot_at(g, t->slot);
	word = shms_segslot_word(&slot, holder);
	shms_segword_or(word, shms_segholder_view(holder));
	/* A state with leases is not CLOSING: the owner has yet to read our word
	 * before it frees the slot. */
	r = shms_segment_stands(g, t);
	if (r < 0 && shms_segword_clear(word, shms_segholder_view(holder)))
		shms_segment_hint(g, t->slot);
	return r;
}

static int take(const struct shms_segslot *slot, const struct shms_segticket *t)
{
	for (unsigned turn = 0; shms_segword_turn(&turn);) {
		uint64_t word = shms_segword_load(slot->state);

		if ((word & promise_part(t)) != promise(t))
			return -ESTALE;
		if (shms_segword_cas(slot->state, word, shms_segstate_unleased(word, t->lease)))
			return 0;
	}
	return -EBADMSG;
}

int shms_segment_take(const struct shms_segment *g, const struct shms_segticket *t)
{
	int r = shms_segment_stands(g, t);
	struct shms_segslot slot;

	if (r < 0)
		return r;
	slot = shms_segslot_at(g, t->slot);
	return take(&slot, t);
}

int shms_segment_adopt(const struct shms_segment *g, unsigned holder, bool kept,
		       const struct shms_segticket *t)
{
	struct shms_segword *intent = &shms_segment_record(g, holder)->intent;
	struct shms_segslot slot;
	bool had;
	int r = shms_segment_stands(g, t);

	if (r < 0)
		return r;
	slot = shms_segslot_at(g, t->slot);
	if (kept)
		shms_segword_store(intent, shms_segintent_make(t->slot, t->generation));
	had = shms_segword_or(shms_segslot_word(&slot, holder), shms_segholder_name(holder));
	/* If the lease was still there, so was the object, since before the bit. */
	r = take(&slot, t);
	if (r < 0 && !had &&
	    shms_segword_clear(shms_segslot_word(&slot, holder), shms_segholder_name(holder)))
		shms_segment_hint(g, t->slot);
	if (kept)
		shms_segword_store(intent, 0);
	return r;
}

/*
 * The owner may have read our word before our bit was in it. Then the state is CLOSING now, and the
 * owner must not go on: any look that it begins later sees the bit. Is the object there?
 */
static bool revive(const struct shms_segslot *slot, uint32_t generation)
{
	shms_segword_cas(slot->state, shms_segstate_make(SHMS_SEG_CLOSING, generation),
			 shms_segstate_make(SHMS_SEG_SEALED, generation));
	return shms_segword_is(slot->state, SHMS_SEGSTATE_PUBLISHED,
			       shms_segstate_make(SHMS_SEG_SEALED, generation));
}

int shms_segslot_pin(const struct shms_segslot *slot, unsigned holder, unsigned from,
		     uint32_t generation)
{
	shms_segword_or(shms_segslot_word(slot, holder), shms_segholder_view(holder));
	if (revive(slot, generation) &&
	    shms_segword_is(shms_segslot_word(slot, from), shms_segholder_name(from),
			    shms_segholder_name(from)))
		return 0;
	shms_segword_clear(shms_segslot_word(slot, holder), shms_segholder_view(holder));
	return -ENOENT;
}

void shms_segticket_format(const struct shms_segticket *t, char ret_text[SHMS_SEGTICKET_TEXT])
{
	uint64_t lease = (uint64_t)t->slot << 32 |
			 (uint64_t)(t->generation & SHMS_SEG_GENERATION) << 8 | (t->lease & 0xff);

	shms_hexdigits_write(lease, ret_text);
	shms_hexdigits_write(t->end_ms, ret_text + 16);
	ret_text[32] = '\0';
}

int shms_segticket_parse(const char *text, size_t n, struct shms_segticket *ret)
{
	uint64_t lease, end_ms;

	if (n != SHMS_SEGTICKET_TEXT - 1 || !shms_hexdigits_read(text, &lease) ||
	    !shms_hexdigits_read(text + 16, &end_ms) || (lease & 0xff) >= SHMS_SEG_LEASES)
		return -EBADMSG;
	*ret = (struct shms_segticket){(uint32_t)(lease >> 32), (uint32_t)lease >> 8, lease & 0xff,
				       end_ms};
	return 0;
}

/*
 * ---- recovery of a holder, slot by slot. All of it may be done twice.
 *
 * A kept store's names stay. One of them may be wrong: an adopt set the bit on a slot that had
 * become another object's, and its process was killed before it looked. The store's intent says
 * which object was meant. If the owner is looking at the slot (CLOSING), it may have read the bits
 * before that name was there. So the state is changed back first; then the name counts.
 */

static void settle_intent(const struct shms_segment *g, unsigned holder, uint64_t intent)
{
	uint32_t index = (uint32_t)intent;
	struct shms_segslot slot;

	/* No honest store meant such a slot, and none of its bits can be there. */
	if (index >= shms_segment_born(g))
		return;
	slot = shms_segslot_at(g, index);
	if (!revive(&slot, shms_segintent_generation(intent)) &&
	    shms_segword_clear(shms_segslot_word(&slot, holder), shms_segholder_name(holder)))
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
