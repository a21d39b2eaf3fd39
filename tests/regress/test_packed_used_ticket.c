/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ticket that had been used was brought again. Under another key, the alias for it needed a
 * segment of the store's own; while that was made the ticket's segment was left, in which the store
 * had nothing, and then it was used. And the object's key was read through the map before it was
 * asked whether the lease stood: the slot was free, its memory given back, and the read took fresh
 * memory, or ended the process by SIGBUS where the partition was full.
 */
#include "packs.h"

#define LONG_KEY "a key that does not fit into the sixteen bytes of a slot"
#define SIZE     300000

/* Both are tickets of one object; the first one is used by the receiver, the
 * second one by another store. */
static void use_both(struct shms_pack *donor, struct shms_pack *receiver, const char *key,
		     char ret_used[SHMS_PACK_TICKET])
{
	struct shms_pack *other = open_pack("other", false);
	char path[SHMS_PACK_TICKET];

	cr_assert_eq(hand_off(donor, key, path), 0);
	cr_assert_eq(hand_off(donor, key, ret_used), 0);
	cr_assert_eq(adopt(receiver, path, key, false), 0);
	cr_assert_eq(drop(receiver, key), 0);
	cr_assert_eq(adopt(other, ret_used, key, false), 0);
	cr_assert_eq(drop(other, key), 0);
	close_pack(other);
}

static blkcnt_t blocks_of(const struct shms_pack *p)
{
	struct stat st;

	cr_assert_eq(fstatat(p->options.dir_fd, p->segments[0].file->name, &st, 0), 0);
	return st.st_blocks;
}

/* Calls that tidy the receiver's segments, one at each call, by turn. */
static void tidy(struct shms_pack *receiver, int calls)
{
	for (int i = 0; i < calls; i++)
		cr_assert_eq(drop(receiver, "nothing"), -ENOENT);
}

Test(packed_used_ticket, under_another_key_it_is_stale)
{
	for (int turn = 0; turn < 3; turn++) {
		struct shms_pack *first = open_pack("first", false),
				 *donor = open_pack("donor", false);
		struct shms_pack *receiver = open_pack("receiver", false);
		char used[SHMS_PACK_TICKET];

		cr_assert_eq(put(receiver, "large", SIZE, 1, false), 0);
		cr_assert_eq(put(first, "key", 2000, 2, false), 0);
		use_both(first, receiver, "key", used);
		cr_assert_eq(put(donor, "key", 2000, 3, false), 0);
		use_both(donor, receiver, "key", used);
		/* The number before that of the donor's segment becomes free, for
		 * the receiver's next own one. */
		close_pack(first);
		tidy(receiver, 3 + turn);
		close_pack(donor);
		cr_assert_eq(adopt(receiver, used, "another", false), -ESTALE);
		cr_assert(has(receiver, "large", SIZE, 1));
		cr_assert(!has(receiver, "another", 2000, 3));
		close_pack(receiver);
	}
}

Test(packed_used_ticket, takes_no_memory)
{
	struct shms_pack *donor = open_pack("donor", false),
			 *receiver = open_pack("receiver", false);
	char used[SHMS_PACK_TICKET];
	blkcnt_t before;

	cr_assert_eq(put(donor, LONG_KEY, SIZE, 1, false), 0);
	cr_assert_eq(put(donor, "stays", SIZE, 2, false), 0);
	use_both(donor, receiver, LONG_KEY, used);
	cr_assert_eq(drop(donor, LONG_KEY), 0);
	cr_assert_gt(shms_pack_trim(donor, NOW), SIZE / 2);
	before = blocks_of(donor);
	cr_assert_eq(adopt(receiver, used, LONG_KEY, false), -ESTALE);
	cr_assert_eq(blocks_of(donor), before);
	close_pack(receiver);
	close_pack(donor);
}
