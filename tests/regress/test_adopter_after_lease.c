/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recycling looked at the link count after it had given its lease back: an adopter that mapped
 * the file by its own name in between, and removed that name, was seen by neither, and the next
 * put wrote into what it showed.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdarg.h>

#include "api.h"
#include "interpose.h"

#define SIZE 200000u

static struct other *adopter; /* of the key "theirs"; NULL: it has done what it does */

/* The lease is over, the file was not mapped while it was held. Now it is, and has a name less. */
static void map_and_leave(void)
{
	cr_assert_eq(other_view(adopter, "theirs", 0), 0);
	cr_assert_eq(other_delete(adopter, "theirs"), 0);
	adopter = NULL;
}

int fcntl(int fd, int command, ...)
{
	typedef int fn(int, int, ...);
	va_list list;
	void *argument;
	int r;

	va_start(list, command);
	argument = va_arg(list, void *);
	va_end(list);
	r = NEXT(fn *, "fcntl")(fd, command, argument);
	if (r == 0 && adopter && command == F_SETLEASE && (int)(intptr_t)argument == F_UNLCK)
		map_and_leave();
	return r;
}

Test(adopter_after_lease, its_view_does_not_change)
{
	struct shmstore *s = scratch_store("s");
	struct other o = other_start("o");
	struct shmstore_ticket t;

	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("k"), 60000, &t), 0);
	cr_assert_eq(other_adopt(&o, "theirs", &t), 0);
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	cr_assert_eq(count_in_store("s", "recycle"), 1);
	adopter = &o;
	for (uint64_t seed = 2; seed < 5; seed++) {
		cr_assert_eq(put_pattern(s, "k", SIZE, seed, 0), 0);
		cr_assert_null(adopter, "the file was looked at");
		cr_assert_eq(other_check_view(&o, SIZE, 1), 0,
			     "put %d wrote into a file that is mapped", (int)seed);
		cr_assert_eq(get_pattern(s, "k", SIZE, seed), 0);
		cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	}
	cr_assert_eq(other_unview(&o), 0);
	cr_assert_eq(other_close(&o), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
