/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adopting over a held key moved the lease into recycle/ and then swapped: where the swap failed
 * the lease was gone, and with it the object if the donor had deleted its own.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "api.h"
#include "interpose.h"

int renameat2(int olddir, const char *old, int newdir, const char *new, unsigned int flags)
{
	typedef int fn(int, const char *, int, const char *, unsigned int);

	if (interpose_now()) {
		errno = EIO;
		return -1;
	}
	return NEXT(fn *, "renameat2")(olddir, old, newdir, new, flags);
}

int renameat(int olddir, const char *old, int newdir, const char *new)
{
	typedef int fn(int, const char *, int, const char *);

	if (interpose_now()) {
		errno = EIO;
		return -1;
	}
	return NEXT(fn *, "renameat")(olddir, old, newdir, new);
}

Test(adopt_replace_fails, ticket_stays_good)
{
	struct shmstore *donor = scratch_store("donor"), *s = scratch_store("s");
	struct shmstore_ticket t;
	int n_failed = 0;

	for (int n = 1; n <= 6; n++) {
		cr_assert_eq(put_pattern(donor, "d", 5000, 7, 0), 0);
		cr_assert_eq(shmstore_handoff(donor, KEY("d"), 60000, &t), 0);
		cr_assert_eq(shmstore_delete(donor, KEY("d")), 0);
		cr_assert_eq(put_pattern(s, "k", 5000, 8, SHMSTORE_REPLACE), 0);
		interpose_countdown = n;
		int r = shmstore_adopt(s, KEY("k"), &t, SHMSTORE_REPLACE);
		interpose_countdown = 0;
		if (r < 0) {
			n_failed++;
			cr_assert_eq(get_pattern(s, "k", 5000, 8), 0, "the old object is gone");
			cr_assert_eq(shmstore_adopt(s, KEY("k"), &t, SHMSTORE_REPLACE), 0,
				     "call %d: the ticket is lost", n);
		}
		cr_assert_eq(get_pattern(s, "k", 5000, 7), 0);
	}
	cr_assert_gt(n_failed, 0);
	cr_assert_eq(shmstore_close(donor), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
