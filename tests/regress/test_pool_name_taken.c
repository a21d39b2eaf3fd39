/* SPDX-License-Identifier: Apache-2.0 */
/* A file in recycle/ under the pool's next name made delete fail with -EEXIST: the
 * object could not be deleted. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "api.h"

Test(pool_name_taken, delete_deletes)
{
	struct shmstore *s = scratch_store("s");
	char name[16];

	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "recycle/%d", i);
		int fd = open(scratch_store_path("s", name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		cr_assert_geq(fd, 0);
		close(fd);
	}
	cr_assert_eq(put_pattern(s, "a", 100000, 1, 0), 0);
	cr_assert_eq(shmstore_delete(s, KEY("a")), 0);
	cr_assert_eq(shmstore_contains(s, KEY("a")), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
