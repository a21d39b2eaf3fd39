/* SPDX-License-Identifier: Apache-2.0 */
/* A store whose page could not be statted was taken for a directory without one, and
 * gc removed its empty parts. */
#include <criterion/criterion.h>
#include <sys/stat.h>

#include "api.h"
#include "interpose.h"

int fstatat(int dirfd, const char *restrict name, struct stat *restrict st, int flags)
{
	typedef int fn(int, const char *, struct stat *, int);

	if (strcmp(name, ".store") == 0 && interpose_now()) {
		errno = EIO;
		return -1;
	}
	return NEXT(fn *, "fstatat")(dirfd, name, st, flags);
}

Test(page_not_looked_at, live_store_keeps_its_parts)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s = scratch_store("s");
	struct shmstore_ticket t;

	cr_assert_eq(put_pattern(s, "a", 100, 1, 0), 0);
	interpose_countdown = 1;
	shmstore_partition_gc(p, 0, NULL);
	cr_assert_eq(interpose_countdown, 0, "the page was not asked for");
	cr_assert_geq(count_in_store("s", "handoff"), 0);
	cr_assert_geq(count_in_store("s", "recycle"), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("a"), 1000, &t), 0);
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
}
