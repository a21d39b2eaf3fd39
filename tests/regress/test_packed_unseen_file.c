/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a packed object's key is a file's too could not be looked at: that was taken for a yes.
 * So a kept store that was opened again deleted the object, and a list left it out.
 */
#include <criterion/criterion.h>
#include <sys/stat.h>

#include "api.h"
#include "interpose.h"

static bool failing;

int fstatat(int dir, const char *name, struct stat *st, int flags)
{
	typedef int fn(int, const char *, struct stat *, int);

	if (failing && strcmp(name, "small") == 0) {
		errno = EIO;
		return -1;
	}
	return NEXT(fn *, "fstatat")(dir, name, st, flags);
}

static int count(const struct shmstore_object_info *info, void *arg)
{
	(void)info;
	++*(unsigned *)arg;
	return 0;
}

static int list(struct shmstore *s, unsigned *ret_n)
{
	*ret_n = 0;
	return shmstore_foreach(s, count, ret_n);
}

/* Opens the kept store while nobody can look. */
static int open_blind(struct shmstore **ret)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	int r;

	o.keep = true;
	o.pack_max = 100000;
	failing = true;
	r = shmstore_open(scratch_partition(), "kept", &o, ret);
	failing = false;
	return r;
}

Test(packed_unseen_file, the_object_stays_and_is_not_left_out)
{
	struct shmstore *s = packing_store("kept", 100000, true);
	unsigned n;

	cr_assert_eq(put_pattern(s, "small", 5000, 1, 0), 0);
	cr_assert_eq(put_pattern(s, "large", 500000, 2, 0), 0);
	failing = true;
	cr_assert_eq(list(s, &n), -EIO);
	failing = false;
	cr_assert_eq(list(s, &n), 0);
	cr_assert_eq(n, 2);
	cr_assert_eq(shmstore_close(s), 0);
	if (open_blind(&s) < 0)
		s = packing_store("kept", 100000, true);
	cr_assert_eq(get_pattern(s, "small", 5000, 1), 0);
	cr_assert_eq(list(s, &n), 0);
	cr_assert_eq(n, 2);
	cr_assert_eq(shmstore_close(s), 0);
}
