/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another process of the user wrote into the shared words of a segment. The store's count of the slots that it has in the segment followed them, and was 0
 * while a key of it stood in the index. So the segment was left as soon as its owner was gone, and the next look for the key read what was unmapped.
 */
#include "packs.h"
#include "segslot.h"

/* Takes the store's name from the slot of the object, which the store views, as a hostile process may, and ends the view. */
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
		cr_assert_eq(adopt(receiver, ticket, i ? keys[i] : "another", false), 0);
	}
}

Test(packed_written_words, segment_stays_while_a_key_means_it)
{
	struct shms_pack *donor = open_pack("donor", false), *receiver = open_pack("receiver", false);

	take_both(donor, receiver);
	close_pack(donor);
	unname_viewed(receiver, "another");
	cr_assert_eq(drop(receiver, "goes"), 0);
	for (int i = 0; i < 300; i++)
		cr_assert_eq(drop(receiver, "nothing"), -ENOENT); /* tidies by turn */
	cr_assert(shms_pack_has(receiver, "another", 7));
	(void)drop(receiver, "another");
	close_pack(receiver);
}
