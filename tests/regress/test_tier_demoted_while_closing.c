/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another process that demotes an object of a store makes clean/ there, and a name in it, before it
 * has the lock. In a store that had no clean/ so far and was being closed that name could come
 * between clean/'s emptying and its removal: close() said -EEXIST, and left the store's remains.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "interpose.h"
#include "page.h"
#include "tierformat.h"

static int late; /* names still to be made */

/* Before objects/ is removed: clean/ has been emptied, or was not there. */
int unlinkat(int dirfd, const char *name, int flags)
{
	typedef int fn(int, const char *, int);

	if ((flags & AT_REMOVEDIR) && strcmp(name, SHMS_DIR_OBJECTS) == 0 && late > 0) {
		late--;
		ENSURE(mkdirat(dirfd, SHMS_DIR_CLEAN, 0700) == 0 || errno == EEXIST);
		int fd =
			openat(dirfd, SHMS_DIR_CLEAN "/late", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		ENSURE(fd >= 0);
		close(fd);
	}
	return NEXT(fn *, "unlinkat")(dirfd, name, flags);
}

Test(tier_demoted_while_closing, close_takes_it_along)
{
	struct shmstore *s = scratch_plain_store("s");

	cr_assert_eq(put_pattern(s, "a", 100000, 1, 0), 0);
	late = 1;
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(late, 0);
	cr_assert_lt(access(scratch_store_path("s", ""), F_OK), 0);
	ensure_nothing_left();
}

Test(tier_demoted_while_closing, what_comes_again_and_again_is_left_to_gc)
{
	struct shmstore *s = scratch_plain_store("s");

	late = 100;
	cr_assert_eq(shmstore_close(s), -EEXIST);
	cr_assert_gt(late, 90);
	late = 0;
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, NULL), 0);
	ensure_nothing_left();
}
