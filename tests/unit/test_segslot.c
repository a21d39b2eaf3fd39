/* SPDX-License-Identifier: Apache-2.0 */
/* Each transition of a slot, by one process after the other, for every number of holder words.
 * Races and kills: tests/model, tests/race. */
#include <criterion/criterion.h>
#include <errno.h>

#include "segments.h"

struct scene {
	struct shms_segment g;
	struct shms_segalloc a;
	struct shms_segslot slot;
	uint32_t index, generation;
};

/* One object, which the owner has by name. */
static struct scene scene(uint32_t holders)
{
	struct scene s = {.g = segment_in_memory(100, holders, 1 << 20)};

	cr_assert_eq(shms_segalloc_init(&s.a, &s.g), 0);
	return s;
}

static void begin(struct scene *s)
{
	s->a.segment = &s->g;
	s->index = segment_put(&s->a, 100, 'x', &s->generation);
	s->slot = shms_segslot_at(&s->g, s->index);
}

static void end(struct scene *s)
{
	shms_segalloc_deinit(&s->a);
	free(s->g.books);
}

static uint64_t state_of(struct scene *s)
{
	return shms_segword_load(s->slot.state);
}

static struct shms_segticket handoff(struct scene *s, uint64_t end_ms)
{
	struct shms_segticket t = {s->index, s->generation, 99, end_ms};

	cr_assert_eq(shms_segslot_handoff(&s->slot, s->generation, 0, 0, end_ms, &t.lease), 0);
	return t;
}

Test(segslot, an_object_goes_from_hand_to_hand_and_its_slot_comes_back)
{
	for (uint32_t holders = 32; holders <= 256; holders *= 2) {
		struct scene s = scene(holders);
		unsigned last = holders - 1;
		struct shms_segpacked o;
		struct shms_segticket t;

		begin(&s);
		t = handoff(&s, 10000);
		cr_assert_eq(segment_adopt(&s.g, last, false, &t, &o), 0);
		cr_assert_eq(o.buffer_size, 100);
		cr_assert_eq(segment_adopt(&s.g, 7, false, &t, &o), -ESTALE); /* used */
		shms_segslot_drop(&s.slot, SHMS_SEG_OWNER, SHMS_SEGVIEWS_NONE);
		cr_assert_not(shms_segslot_free(&s.slot, 0));
		cr_assert_eq(state_of(&s), shms_segstate_make(SHMS_SEG_SEALED, s.generation));
		/* A view outlives the name. */
		cr_assert_not(shms_segslot_drop(&s.slot, last, SHMS_SEGVIEWS_LIVE));
		cr_assert_not(shms_segslot_free(&s.slot, 0));
		cr_assert(shms_segslot_unview(&s.slot, last));
		cr_assert(shms_segslot_free(&s.slot, 0));
		cr_assert_eq(state_of(&s), shms_segstate_make(SHMS_SEG_FREE, s.generation));
		end(&s);
	}
}

Test(segslot, a_lease_keeps_the_object_until_its_end_and_no_longer)
{
	struct scene s = scene(32);
	struct shms_segpacked o;
	struct shms_segticket t;

	begin(&s);
	t = handoff(&s, 9001);
	shms_segslot_drop(&s.slot, SHMS_SEG_OWNER, SHMS_SEGVIEWS_NONE);
	cr_assert_not(shms_segslot_free(&s.slot, shms_segnow_of_ms(9001)));
	cr_assert_not(shms_segslot_free(&s.slot, shms_segnow_of_ms(11999)));
	cr_assert(shms_segslot_free(&s.slot, shms_segnow_of_ms(12000)));
	cr_assert_eq(segment_adopt(&s.g, 3, false, &t, &o), -ESTALE);
	cr_assert_not(shms_segslot_held(&s.slot));
	end(&s);
}

/* gc takes them, all at once and no sooner, and leaves the object. */
Test(segslot, leases_that_have_ended_go)
{
	struct scene s = scene(32);
	struct shms_segpacked o;
	struct shms_segticket t;

	begin(&s);
	cr_assert_eq(shms_segslot_expire(&s.slot, 0), 0);
	handoff(&s, 4000);
	t = handoff(&s, 10000);
	cr_assert_eq(shms_segslot_expire(&s.slot, shms_segnow_of_ms(9000)), 0);
	cr_assert_eq(shms_segslot_expire(&s.slot, shms_segnow_of_ms(14000)), 2);
	cr_assert_eq(state_of(&s), shms_segstate_make(SHMS_SEG_SEALED, s.generation));
	cr_assert_eq(shms_segslot_expire(&s.slot, shms_segnow_of_ms(14000)), 0);
	cr_assert_eq(segment_adopt(&s.g, 7, false, &t, &o), -ESTALE);
	cr_assert(shms_segslot_held(&s.slot));
	shms_segslot_drop(&s.slot, SHMS_SEG_OWNER, SHMS_SEGVIEWS_NONE);
	cr_assert(shms_segslot_free(&s.slot, 0));
	cr_assert_eq(shms_segslot_expire(&s.slot, 0), 0);
	end(&s);
}

Test(segslot, twelve_leases_are_out_at_once_and_the_latest_end_counts)
{
	struct scene s = scene(32);
	struct shms_segpacked o;
	struct shms_segticket t[SHMS_SEG_LEASES];
	uint32_t lease = 0, seen = 0;

	begin(&s);
	for (unsigned i = 0; i < SHMS_SEG_LEASES; i++) {
		t[i] = handoff(&s, i == 4 ? 50000 : 10000);
		seen |= 1u << t[i].lease;
	}
	cr_assert_eq(seen, (1u << SHMS_SEG_LEASES) - 1);
	cr_assert_eq(shms_segstate_end(state_of(&s)), 25);
	cr_assert_eq(shms_segslot_handoff(&s.slot, s.generation, 5, 0, 10000, &lease), -EAGAIN);
	cr_assert_eq(segment_adopt(&s.g, 1, true, &t[7], &o), 0);
	cr_assert_eq(shms_segslot_handoff(&s.slot, s.generation, 5, 0, 10000, &lease), 0);
	cr_assert_eq(lease, t[7].lease);
	for (unsigned i = 0; i < SHMS_SEG_LEASES; i++)
		cr_assert_eq(segment_adopt(&s.g, 1, false, &t[i], &o), 0);
	cr_assert_eq(state_of(&s), shms_segstate_make(SHMS_SEG_SEALED, s.generation));
	cr_assert_eq(shms_segslot_handoff(&s.slot, s.generation, 0, 5,
					  5 + SHMS_SEG_LEASE_MAX_MS + 1, &lease),
		     -EINVAL);
	cr_assert_eq(shms_segslot_handoff(&s.slot, s.generation + 1, 0, 0, 5, &lease), -EBADMSG);
	end(&s);
}

Test(segslot, ends_are_compared_on_a_circle)
{
	uint32_t late = SHMS_SEG_END - 2;
	uint64_t word = shms_segstate_leased(shms_segstate_make(SHMS_SEG_SEALED, 1), 0, late);

	cr_assert(shms_segstate_promised(word, late));
	cr_assert_not(shms_segstate_promised(word, 0));
	word = shms_segstate_leased(word, 1, 3); /* later than late */
	cr_assert_eq(shms_segstate_end(word), 3);
	word = shms_segstate_leased(word, 2, late);
	cr_assert_eq(shms_segstate_end(word), 3);
	cr_assert(shms_segstate_promised(word, 3));
	cr_assert_not(shms_segstate_promised(word, 4));
}

Test(segslot, a_stale_ticket_leaves_no_bit_and_no_intent_behind)
{
	struct scene s = scene(64);
	struct shms_segpacked o;
	struct shms_segticket t, bad;

	begin(&s);
	t = handoff(&s, 10000);
	bad = t;
	bad.generation++;
	cr_assert_eq(segment_adopt(&s.g, 40, true, &bad, &o), -ESTALE);
	bad = t;
	bad.lease++;
	cr_assert_eq(segment_adopt(&s.g, 40, true, &bad, &o), -ESTALE);
	bad.lease = SHMS_SEG_LEASES;
	cr_assert_eq(segment_adopt(&s.g, 40, true, &bad, &o), -EBADMSG);
	bad = t;
	bad.slot = s.a.n_born;
	cr_assert_eq(segment_adopt(&s.g, 40, true, &bad, &o), -EBADMSG);
	bad.slot = UINT32_MAX;
	cr_assert_eq(segment_adopt(&s.g, 40, true, &bad, &o), -EBADMSG);
	/* A description that is no object's is seen before a name is set: the lease stays, and a
	 * name that was there before stays, too. */
	s.slot.packed[0].value = 0;
	for (unsigned holder = 0; holder <= 40; holder += 40) {
		cr_assert_eq(shms_segment_hold(&s.g, holder, &t), 0);
		cr_assert_eq(shms_segpacked_read(&s.g, &s.slot, &o), -EBADMSG);
		cr_assert_eq(shms_segslot_unview(&s.slot, holder), holder == 40);
	}
	cr_assert_eq(shms_segword_load(&s.slot.holders[1]), 0);
	cr_assert_eq(shms_segword_load(&s.slot.holders[0]), 1);
	cr_assert_eq(shms_segstate_leases(state_of(&s)), 1u << t.lease);
	cr_assert_eq(shms_segword_load(&shms_segment_record(&s.g, 40)->intent), 0);
	end(&s);
}

Test(segslot, a_pin_holds_what_is_there_by_name_and_nothing_else)
{
	struct scene s = scene(32);

	begin(&s);
	cr_assert_eq(shms_segslot_pin(&s.slot, 5, 4, s.generation), -ENOENT);
	cr_assert_eq(shms_segslot_pin(&s.slot, 5, SHMS_SEG_OWNER, s.generation + 1), -ENOENT);
	cr_assert_eq(shms_segword_load(&s.slot.holders[0]), 1);
	cr_assert_eq(shms_segslot_pin(&s.slot, 5, SHMS_SEG_OWNER, s.generation), 0);
	shms_segslot_drop(&s.slot, SHMS_SEG_OWNER, SHMS_SEGVIEWS_NONE);
	cr_assert_not(shms_segslot_free(&s.slot, 0));
	/* While the owner looks: the pin takes the slot back from it. */
	shms_segword_or(&s.slot.holders[0], 1);
	shms_segword_store(s.slot.state, shms_segstate_make(SHMS_SEG_CLOSING, s.generation));
	cr_assert_eq(shms_segslot_pin(&s.slot, 6, SHMS_SEG_OWNER, s.generation), 0);
	cr_assert_eq(state_of(&s), shms_segstate_make(SHMS_SEG_SEALED, s.generation));
	end(&s);
}

Test(segslot, recovery_gives_back_what_the_dead_held_and_no_more)
{
	for (int kept = 0; kept < 2; kept++) {
		struct scene s = scene(64);
		struct shms_segpacked o;
		struct shms_segticket t;

		begin(&s);
		t = handoff(&s, 10000);
		cr_assert_eq(segment_adopt(&s.g, 33, kept, &t, &o), 0);
		cr_assert_eq(shms_segslot_pin(&s.slot, 34, 33, s.generation), 0);
		shms_segword_or(&s.slot.holders[1], shms_segholder_view(33));
		shms_segment_recover(&s.g, 33, kept);
		shms_segment_recover(&s.g, 33, kept);
		cr_assert_eq(shms_segword_load(&s.slot.holders[0]), 1);
		cr_assert_eq(shms_segword_load(&s.slot.holders[1]),
			     shms_segholder_view(34) | (kept ? shms_segholder_name(33) : 0));
		end(&s);
	}
}

Test(segslot, recovery_of_the_owner_ends_its_puts_and_its_looks)
{
	struct scene s = scene(32);
	uint32_t generation;

	begin(&s);
	shms_segword_store(s.slot.state, shms_segstate_make(SHMS_SEG_CLOSING, s.generation));
	shms_segment_recover(&s.g, SHMS_SEG_OWNER, true);
	cr_assert_eq(state_of(&s), shms_segstate_make(SHMS_SEG_SEALED, s.generation));
	cr_assert_eq(shms_segword_load(&s.slot.holders[0]), 1);
	shms_segslot_drop(&s.slot, SHMS_SEG_OWNER, SHMS_SEGVIEWS_NONE);
	cr_assert(shms_segslot_free(&s.slot, 0));
	cr_assert_eq(shms_segslot_begin(&s.slot, &generation), 0);
	cr_assert_eq(shms_segslot_begin(&s.slot, &generation), -EBADMSG);
	shms_segword_or(&s.slot.holders[0], shms_segholder_name(SHMS_SEG_OWNER));
	shms_segment_recover(&s.g, SHMS_SEG_OWNER, true);
	cr_assert_eq(state_of(&s), shms_segstate_make(SHMS_SEG_FREE, generation));
	cr_assert_eq(shms_segword_load(&s.slot.holders[0]), 0);
	end(&s);
}

Test(segslot, an_intent_tells_a_name_that_was_set_on_the_wrong_object)
{
	struct scene s = scene(32);
	struct shms_segrecord *record;

	begin(&s);
	record = shms_segment_record(&s.g, 9);
	shms_segword_or(&s.slot.holders[0], shms_segholder_name(9));
	shms_segword_store(&record->intent, shms_segintent_make(s.index, s.generation - 1));
	shms_segment_recover(&s.g, 9, true);
	cr_assert_eq(shms_segword_load(&s.slot.holders[0]), 1);
	cr_assert_eq(shms_segword_load(&record->intent), 0);
	/* The right object, while its owner looks: the name counts, and the
	 * owner begins its look anew. */
	shms_segword_or(&s.slot.holders[0], shms_segholder_name(9));
	shms_segword_store(s.slot.state, shms_segstate_make(SHMS_SEG_CLOSING, s.generation));
	shms_segword_store(&record->intent, shms_segintent_make(s.index, s.generation));
	shms_segment_recover(&s.g, 9, true);
	cr_assert_eq(shms_segword_load(&s.slot.holders[0]), 1 | shms_segholder_name(9));
	cr_assert_eq(state_of(&s), shms_segstate_make(SHMS_SEG_SEALED, s.generation));
	/* An intent that no honest store wrote. */
	shms_segword_store(&record->intent, UINT64_MAX);
	shms_segment_recover(&s.g, 9, true);
	cr_assert_eq(shms_segword_load(&record->intent), 0);
	end(&s);
}

Test(segslot, a_tickets_text_is_read_as_it_was_written_and_no_other_is)
{
	struct shms_segticket t = {0x00ab12cd, 0xfedcba, 11, UINT64_C(0x1234567890abcdef)}, back;
	char text[SHMS_SEGTICKET_TEXT];

	shms_segticket_format(&t, text);
	cr_assert_str_eq(text, "00ab12cdfedcba0b1234567890abcdef");
	cr_assert_eq(shms_segticket_parse(text, 32, &back), 0);
	cr_assert(back.slot == t.slot && back.generation == t.generation && back.lease == t.lease &&
		  back.end_ms == t.end_ms);
	cr_assert_eq(shms_segticket_parse(text, 31, &back), -EBADMSG);
	for (size_t i = 0; i < 32; i++) {
		char old = text[i];

		for (const char *c = "gABCDEF /:`@"; *c; c++) {
			text[i] = *c;
			cr_assert_eq(shms_segticket_parse(text, 32, &back), -EBADMSG, "%s", text);
		}
		text[i] = old;
	}
	text[15] = 'c'; /* the twelfth lease is the last one */
	cr_assert_eq(shms_segticket_parse(text, 32, &back), -EBADMSG);
}
