/* SPDX-License-Identifier: Apache-2.0 */
/* An owner held eight descriptors, so that a program could not have many stores: docs/operations.md
 * says how many a handle takes. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <unistd.h>

#include "api.h"

static unsigned descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	cr_assert(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

Test(descriptors_held, a_handle_takes_few)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	unsigned before, owner;
	struct shmstore *s, *reader;

	scratch_partition();
	before = descriptors();
	s = packing_store("s", UINT64_C(1) << 20, false);
	cr_assert_leq(descriptors(), before + 2);
	cr_assert_eq(put_pattern(s, "small", 1000, 1, 0), 0);
	owner = descriptors();
	cr_assert_leq(owner, before + 4, "an owner with one segment holds %u", owner - before);
	o.flags = SHMSTORE_OPEN_READONLY;
	cr_assert_eq(shmstore_open(scratch_partition(), "s", &o, &reader), 0);
	cr_assert_leq(descriptors(), owner + 2);
	cr_assert_eq(get_pattern(reader, "small", 1000, 1), 0);
	cr_assert_leq(descriptors(), owner + 4);
	cr_assert_eq(shmstore_close(reader), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(descriptors(), before);
}

/* The page's map alone keeps its lock. */
Test(descriptors_held, the_store_lives_and_is_let_go)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s = packing_store("s", 0, false), *reader;
	int pid, alive;

	o.flags = SHMSTORE_OPEN_READONLY;
	cr_assert_eq(shmstore_open(scratch_partition(), "s", &o, &reader), 0);
	cr_assert_eq(shmstore_owner(reader, &pid, &alive), 0);
	cr_assert(alive == SHMSTORE_ALIVE && pid == (int)getpid());
	cr_assert_eq(shmstore_close(s), 0);
	s = packing_store("s", 0, false);
	cr_assert_eq(put_pattern(s, "k", 100000, 1, 0), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(shmstore_close(reader), 0);
}
