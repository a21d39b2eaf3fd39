/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another process of the user wrote into shared words. Of a segment: the store's count of the slots
 * that it has there followed them, and was 0 while a key of it stood in the index. So the segment
 * was left as soon as its owner was gone, and the next look for the key read what was unmapped. Of
 * the index: the owner believed each cell, and read slots of segments that there are not; and a put
 * never ended where no cell was empty.
 */
#include "packs.h"
#include "segslot.h"

/* Takes the store's name from the slot of the object, which the store views, as a hostile
 * process may, and ends the view. */
static void unname_viewed(struct shms_pack *p, const char *key)
{
	struct shms_pack_view v;
	struct shms_segslot slot;

	cr_assert_eq(shms_pack_get(p, key, strlen(key), &v), 0);
	slot = shms_packseg_slot(&p->segments[v.number], v.slot);
	shms_segword_clear(shms_segslot_word(&slot, p->segments[v.number].file->holder),
			   shms_segholder_name(p->segments[v.number].file->holder));
	shms_pack_unget(p, &v, NOW);
}

static void take_both(struct shms_pack *donor, struct shms_pack *receiver)
{
	static const char *const keys[] = {"stays", "goes"};

	for (int i = 0; i < 2; i++) {
		char ticket[SHMS_PACK_TICKET];

		cr_assert_eq(put(donor, keys[i], 2000, 1 + (uint64_t)i, false), 0);
		cr_assert_eq(hand_off(donor, keys[i], ticket), 0);
		cr_assert_eq(adopt(receiver, ticket, keys[i], false), 0);
	}
}

Test(packed_written_words, segment_stays_while_a_key_means_it)
{
	struct shms_pack *donor = open_pack("donor", false),
			 *receiver = open_pack("receiver", false);

	take_both(donor, receiver);
	close_pack(donor);
	unname_viewed(receiver, "stays");
	cr_assert_eq(drop(receiver, "goes"), 0);
	for (int i = 0; i < 300; i++)
		cr_assert_eq(drop(receiver, "nothing"), -ENOENT); /* tidies by turn */
	cr_assert(shms_pack_has(receiver, "stays", 5));
	(void)drop(receiver, "stays");
	close_pack(receiver);
}

/* All cells say that place, whatever the key. */
static void fill_index(struct shms_pack *p, uint32_t segment, uint32_t slot)
{
	for (uint32_t line = 0; line < p->index.n_lines; line++) {
		for (uint32_t tag = 0, i = 0; i < SHMS_PACKINDEX_CELLS; i++, tag++)
			atomic_store(&p->index.lines[line].cells[i],
				     ((line * SHMS_PACKINDEX_CELLS + tag) % 255 + 1) << 24 |
					     segment << 16 | slot);
	}
}

Test(packed_written_words, no_cell_of_the_index_is_believed)
{
	static const struct shms_packplace places[] = {{0, 65535}, {1, 0}, {200, 7}, {255, 65535}};

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		struct shms_pack *p = open_pack("written", false);

		cr_assert_eq(put(p, "before", 2000, 1, false), 0);
		fill_index(p, places[i].segment, places[i].slot);
		/* Until the index has grown, and beyond. */
		for (uint64_t k = 0; k < 3000; k++) {
			char key[16];

			snprintf(key, sizeof(key), "%lu", k);
			cr_assert_not(shms_pack_has(p, key, strlen(key)));
			cr_assert_eq(put(p, key, 100, k, false), 0);
		}
		(void)drop(p, "before");
		close_pack(p);
	}
}
