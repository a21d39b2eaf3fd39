/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store that is killed after a file got the key of a packed object, and before that was taken
 * away, leaves a key that is both. Until its next owner came, lists had it twice, and a handle that
 * can only read got the old bytes.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <unistd.h>

#include "api.h"

#define SMALL 1000
#define LARGE 200000
#define X50   "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define LONG  X50 X50 X50 X50 X50 X50

static struct shmstore *open_store(const char *name, unsigned flags)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s;

	o.keep = true;
	o.flags = flags;
	o.pack_max = 64u << 10;
	cr_assert_eq(shmstore_open(scratch_partition(), name, &o, &s), 0);
	return s;
}

/* Makes the state that such a kill leaves: the store has packed objects, and for two of their keys
 * files, which the other store made. */
static void leave_doubles(void)
{
	struct shmstore *s = open_store("killed", 0), *other = open_store("other", 0);
	const char *keys[] = {"k", LONG};
	char command[2000];

	cr_assert_eq(put_pattern(s, "alone", SMALL, 1, 0), 0);
	for (unsigned i = 0; i < 2; i++) {
		cr_assert_eq(put_pattern(s, keys[i], SMALL, 2, 0), 0);
		cr_assert_eq(put_pattern(other, keys[i], LARGE, 3, 0), 0);
	}
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(shmstore_close(other), 0);
	snprintf(command, sizeof(command), "ln %s/* %s", scratch_store_path("other", "objects"),
		 scratch_store_path("killed", "objects"));
	ENSURE(system(command) == 0);
}

struct listed {
	unsigned n, n_packed;
};

static int list(const struct shmstore_object_info *info, void *arg)
{
	struct listed *l = arg;

	cr_assert_eq(info->error, 0);
	cr_assert_eq(info->packed, info->buffer_size == SMALL);
	l->n++;
	l->n_packed += info->packed;
	return 0;
}

static void check(struct shmstore *s)
{
	struct listed l = {0};

	cr_assert_eq(shmstore_foreach(s, list, &l), 0);
	cr_assert_eq(l.n, 3, "%u objects", l.n);
	cr_assert_eq(l.n_packed, 1);
	cr_assert_eq(get_pattern(s, "alone", SMALL, 1), 0);
	cr_assert_eq(get_pattern(s, "k", LARGE, 3), 0);
	cr_assert_eq(get_pattern(s, LONG, LARGE, 3), 0);
	cr_assert_eq(shmstore_contains(s, KEY("k")), 1);
	cr_assert_eq(shmstore_contains(s, KEY(LONG)), 1);
}

Test(packed_double, key_is_the_file)
{
	struct shmstore *s;

	leave_doubles();
	s = open_store("killed", SHMSTORE_OPEN_READONLY);
	check(s);
	cr_assert_eq(shmstore_close(s), 0);
	s = open_store("killed", 0);
	check(s);
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	cr_assert_eq(shmstore_contains(s, KEY("k")), 0);
	cr_assert_eq(shmstore_close(s), 0);
}
