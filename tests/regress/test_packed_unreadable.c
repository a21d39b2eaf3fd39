/* SPDX-License-Identifier: Apache-2.0 */
/* One file of another user in a store's segments/ ended each list of the store with
 * -EPERM, and each open of it. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "api.h"

#define USER 54321
#define SIZE 1000

static struct shmstore *open_store(unsigned flags)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s;
	int r;

	o.keep = true;
	o.flags = flags;
	o.pack_max = 64u << 10;
	r = shmstore_open(scratch_partition(), "kept", &o, &s);
	cr_assert_eq(r, 0, "%s", shmstore_strerror(r));
	return s;
}

struct listed {
	unsigned n, n_hidden;
};

static int list(const struct shmstore_object_info *info, void *arg)
{
	struct listed *l = arg;

	l->n++;
	if (!info->error)
		return 0;
	l->n_hidden++;
	cr_assert_eq(info->error, -EPERM);
	cr_assert_eq(strncmp(info->name, "segments/", 9), 0);
	cr_assert_eq(info->key_size, 0);
	return 0;
}

static void check(struct shmstore *s, unsigned n_hidden, int absent)
{
	struct listed l = {0};
	struct shmstore_view *v;

	cr_assert_eq(shmstore_foreach(s, list, &l), 0);
	cr_assert_eq(l.n, 2 + n_hidden, "%u objects", l.n);
	cr_assert_eq(l.n_hidden, n_hidden);
	cr_assert_eq(get_pattern(s, "a", SIZE, 1), 0);
	cr_assert_eq(get_pattern(s, "b", SIZE, 2), 0);
	cr_assert_eq(shmstore_get(s, KEY("c"), 0, &v), absent);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(packed_unreadable, segment_of_another_user_hides_no_other)
{
	char command[1200];
	struct shmstore *s;

	if (geteuid() != 0)
		cr_skip_test("needs root\n");
	s = open_store(0);
	cr_assert_eq(put_pattern(s, "a", SIZE, 1, 0), 0);
	cr_assert_eq(put_pattern(s, "b", SIZE, 2, 0), 0);
	cr_assert_eq(shmstore_close(s), 0);
	snprintf(command, sizeof(command),
		 "cd %s && cp * 0123456789abcdef0123456789abcdef && chown %u 0123*",
		 scratch_store_path("kept", "segments"), USER);
	ENSURE(system(command) == 0);
	/* The index tells all that the store has, and a list what else is there. */
	check(open_store(SHMSTORE_OPEN_READONLY), 1, -ENOENT);
	/* Without it a handle that can only read does not know whether the key is in there. */
	ENSURE(unlink(scratch_store_path("kept", "index")) == 0);
	check(open_store(SHMSTORE_OPEN_READONLY), 1, -EPERM);
	check(open_store(0), 1, -ENOENT);
}
