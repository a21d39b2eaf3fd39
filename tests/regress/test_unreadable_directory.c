/* SPDX-License-Identifier: Apache-2.0 */
/*
 * readdir() that failed was taken for the end of the directory: closing a store went on,
 * removed the page and left the objects in a directory that no gc dealt with; foreach told of
 * fewer objects and of success.
 */
#include <criterion/criterion.h>
#include <dirent.h>

#include "api.h"
#include "interpose.h"

struct dirent *readdir(DIR *dir)
{
	typedef struct dirent *fn(DIR *);

	if (interpose_now()) {
		errno = EIO;
		return NULL;
	}
	return NEXT(fn *, "readdir")(dir);
}

static int nothing(const struct shmstore_object_info *info, void *arg)
{
	(void)info;
	(void)arg;
	return 0;
}

Test(unreadable_directory, close_and_gc_leave_nothing)
{
	for (int n = 1; n <= 12; n++) {
		struct shmstore *s = scratch_store("s");

		cr_assert_eq(put_pattern(s, "a", 100000, 1, 0), 0);
		cr_assert_eq(put_pattern(s, "b", 100000, 2, 0), 0);
		cr_assert_eq(shmstore_delete(s, "b", 1), 0);
		interpose_countdown = n;
		shmstore_close(s);
		interpose_countdown = 0;
		ensure_nothing_left();
	}
}

Test(unreadable_directory, foreach_says_so)
{
	struct shmstore *s = scratch_store("s");

	cr_assert_eq(put_pattern(s, "a", 100, 1, 0), 0);
	interpose_countdown = 1;
	cr_assert_eq(shmstore_foreach(s, nothing, NULL), -EIO);
	cr_assert_eq(shmstore_close(s), 0);
}
