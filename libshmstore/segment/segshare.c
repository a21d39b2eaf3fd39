/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segshare.c: handoff, adopt and pin, one access after the other.
 *
 * Adopt sets its bit first and takes the lease second, so that the object is never without a
 * reference. Between the two it looks at the state again, since the slot may have become another
 * object's before the bit was set. The bit of a stale ticket delays the slot's owner, and does
 * nothing else. Rejected: the lease first, then the bit (a kill in between, or an owner that looks
 * in between, loses the object).
 */
#include "segshare.h"

#include <errno.h>

#include "hexdigits.h"

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

/*
 * Takes the lease, after our bit was set. If the lease was still there, so was the object, since
 * before the bit. Else the slot's extent may have no memory, and is not touched.
 */
static int take(const struct shms_segment *g, const struct shms_segslot *slot,
		const struct shms_segticket *t, struct shms_segpacked *ret)
{
	int r = ret ? shms_segment_stands(g, t) : 0;

	if (r == 0 && ret)
		r = shms_segpacked_read(g, slot, ret);
	if (r < 0)
		return r;
	for (unsigned turn = 0; shms_segword_turn(&turn);) {
		uint64_t word = shms_segword_load(slot->state);

		if ((word & promise_part(t)) != promise(t))
			return -ESTALE;
		if (shms_segword_cas(slot->state, word, shms_segstate_unleased(word, t->lease)))
			return 0;
	}
	return -EBADMSG;
}

int shms_segment_adopt(const struct shms_segment *g, unsigned holder, bool kept,
		       const struct shms_segticket *t, struct shms_segpacked *ret)
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
	r = take(g, &slot, t, ret);
	if (r < 0 && !had &&
	    shms_segword_clear(shms_segslot_word(&slot, holder), shms_segholder_name(holder)))
		shms_segment_hint(g, t->slot);
	if (kept)
		shms_segword_store(intent, 0);
	return r;
}

int shms_segslot_pin(const struct shms_segslot *slot, unsigned holder, unsigned from,
		     uint32_t generation)
{
	shms_segword_or(shms_segslot_word(slot, holder), shms_segholder_view(holder));
	/* The owner may have read our word before the bit was in it. Then the state is CLOSING
	 * now, and the owner must not go on. Any look that it begins later sees the bit. */
	shms_segword_cas(slot->state, shms_segstate_make(SHMS_SEG_CLOSING, generation),
			 shms_segstate_make(SHMS_SEG_SEALED, generation));
	if (shms_segword_is(slot->state, SHMS_SEGSTATE_PUBLISHED,
			    shms_segstate_make(SHMS_SEG_SEALED, generation)) &&
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
