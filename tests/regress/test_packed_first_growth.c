/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Under a limit, a store's first packed object of 100 KiB took memory for slots ahead of those that
 * it needed, then had too little left for its own bytes, and the file that was to be put instead
 * found no room either: with a segment the store held less than with files.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "api.h"
#include "fakedaemon.h"

Test(packed_first_growth, leaves_room_for_the_object)
{
	struct fake *f = fake_start(scratch_partition(), true, NULL, NULL);
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s = NULL;
	/* Header, records and hints of the segment, a page of slots, the object, and a page for
	 * where it begins and ends. */
	const uint64_t room = UINT64_C(31) * 4096;
	struct wire_credit *c;

	f->room = room;
	f->ahead = 0;
	o.pack_max = UINT64_C(1) << 20;
	cr_assert_eq(shmstore_open(scratch_partition(), "a", &o, &s), 0);
	c = fake_credit(f);
	cr_assert_eq(put_pattern(s, "k", 100000, 1, 0), 0);
	cr_assert_eq(get_pattern(s, "k", 100000, 1), 0);
	cr_assert_eq(count_in_store("a", "objects"), 0);
	cr_assert_leq(atomic_load(&c->fresh) - atomic_load(&c->last), room);
	cr_assert_eq(shmstore_close(s), 0);
	fake_stop(f);
}
