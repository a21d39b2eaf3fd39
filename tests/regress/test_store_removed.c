/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A live store whose files somebody removed (RemoveIPC, a sweeper by age, rm) went on: small
 * puts succeeded and nobody found them, and when it closed it took the objects of the
 * process that had its name since.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "opened.h"

static bool packs(void)
{
	const char *max = getenv("SHMSTORE_PACK_MAX");

	return !max || strcmp(max, "0") != 0;
}

static int put_late(struct shmstore *s, const char *key)
{
	/* As long as a look is good for. */
	usleep(2 * SHMS_THERE_LOOK_MS * 1000);
	return put_pattern(s, key, 100, 1, 0);
}

static void removes(const char *name, const char *what)
{
	struct shmstore *s = scratch_store(name);
	char command[600];
	const char *said;

	cr_assert_eq(put_pattern(s, "a", 100, 1, 0), 0);
	cr_assert_eq(put_late(s, "b"), 0);
	snprintf(command, sizeof(command), "rm -r %s", scratch_store_path(name, what));
	ENSURE(system(command) == 0);
	for (unsigned i = 0; i < 3; i++) {
		cr_assert_eq(put_late(s, "c"), -ENOENT, "%s", what);
		said = shmstore_error_detail();
		cr_assert_not_null(strstr(said, "somebody removed the store"), "%s", said);
		cr_assert_not_null(strstr(said, "open it again"), "%s", said);
	}
	/* An object that is in memory, or still has a name, can be read. */
	if (packs() || *what == '.')
		cr_assert_eq(get_pattern(s, "a", 100, 1), 0);
	cr_assert_leq(shmstore_close(s), 0);
}

Test(store_removed, puts_fail_and_say_what_happened)
{
	removes("one", ".store");
	removes("two", "");
	if (packs())
		removes("three", "segments/*");
}

Test(store_removed, its_close_leaves_the_next_owners_objects)
{
	struct shmstore *s = scratch_store("mine"), *next;

	cr_assert_eq(put_pattern(s, "a", 100, 1, 0), 0);
	ENSURE(unlink(scratch_store_path("mine", ".store")) == 0);
	next = scratch_store("mine");
	cr_assert_eq(put_pattern(next, "b", 100, 2, 0), 0);
	cr_assert_eq(put_pattern(next, "large", 3 << 20, 3, 0), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(get_pattern(next, "b", 100, 2), 0);
	cr_assert_eq(get_pattern(next, "large", 3 << 20, 3), 0);
	cr_assert_eq(put_late(next, "c"), 0);
	cr_assert_eq(shmstore_close(next), 0);
	cr_assert_neq(access(scratch_store_path("mine", "objects"), F_OK), 0);
}
