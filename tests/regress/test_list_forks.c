/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A function that shmstore_foreach() called on a read-only handle forked: the child's list ended by
 * SIGSEGV at the next packed object of the same line of the index, or by -ESTALE. So did a function
 * whose own value was one of the list's errors: -ENOENT became 0.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"

#define KEYS 200u

struct listing {
	unsigned n;
	bool seen[KEYS];
	pid_t child; /* 0: this is the child */
	bool forks;
	int returns; /* at the first key */
};

static int on_key(const struct shmstore_object_info *info, void *arg)
{
	struct listing *l = arg;
	char key[4] = "";
	unsigned i;

	ENSURE(info->key_size == 3);
	memcpy(key, info->key, 3);
	i = (unsigned)strtoul(key, NULL, 10);
	ENSURE(i < KEYS && !l->seen[i]);
	l->seen[i] = true;
	if (l->n++ == 0 && l->forks)
		l->child = fork();
	return l->n == 1 ? l->returns : 0;
}

static struct shmstore *s, *reader;

static void fill(void)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	char key[8];

	s = packing_store("s", 100000, false);
	for (unsigned i = 0; i < KEYS; i++) {
		snprintf(key, sizeof(key), "%03u", i);
		cr_assert_eq(put_pattern(s, key, 300, i, 0), 0);
	}
	cr_assert_eq(count_packed_objects(s), (int)KEYS);
	o.flags = SHMSTORE_OPEN_READONLY;
	cr_assert_eq(shmstore_open(scratch_partition(), "s", &o, &reader), 0);
}

Test(list_forks, child_and_parent_list_all, .timeout = 60)
{
	struct listing l = {.child = -1, .forks = true};
	int r, status;

	fill();
	r = shmstore_foreach(reader, on_key, &l);
	if (l.child == 0)
		_exit(r == 0 && l.n == KEYS ? 0 : 1);
	cr_assert_eq(r, 0);
	cr_assert_eq(l.n, KEYS);
	cr_assert_eq(waitpid(l.child, &status, 0), l.child);
	cr_assert_eq(status, 0, "the child ended with %#x", (unsigned)status);
}

Test(list_forks, the_value_of_the_function_is_returned, .timeout = 60)
{
	static const int values[] = {-ENOENT, -ESTALE, -ENOTSUP, -EAGAIN, 7};

	fill();
	for (size_t i = 0; i < 2 * sizeof(values) / sizeof(values[0]); i++) {
		struct listing l = {.child = -1, .returns = values[i / 2]};

		cr_assert_eq(shmstore_foreach(i % 2 ? s : reader, on_key, &l), l.returns, "%zu", i);
		cr_assert_eq(l.n, 1);
	}
}
