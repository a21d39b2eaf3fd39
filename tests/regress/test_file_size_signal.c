/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments were made larger than RLIMIT_FSIZE (ulimit -f) allows, though the objects in them are
 * small, and files too: the kernel ended the process by SIGXFSZ.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>

#include "api.h"

#define SMALL  8000u
#define N_PUTS 1000u

static void limit_to(rlim_t bytes)
{
	ENSURE(setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, RLIM_INFINITY}) == 0);
}

static void put_many(struct shmstore *s, const char *name)
{
	char key[32];

	for (unsigned i = 0; i < N_PUTS; i++) {
		snprintf(key, sizeof(key), "%s%u", name, i);
		ENSURE(put_pattern(s, key, SMALL, i, 0) == 0);
	}
	for (unsigned i = 0; i < N_PUTS; i++) {
		snprintf(key, sizeof(key), "%s%u", name, i);
		ENSURE(get_pattern(s, key, SMALL, i) == 0);
	}
}

static int small_objects(void *arg)
{
	struct shmstore *s;

	limit_to(*(const rlim_t *)arg);
	s = packing_store("s", UINT64_C(1) << 20, false);
	put_many(s, "k");
	ENSURE(count_packed_objects(s) == N_PUTS);
	ENSURE(shmstore_close(s) == 0);
	return 0;
}

/* Segments that are larger already are written beyond the limit, by write() and through maps. */
static int limit_comes_later(void *arg)
{
	struct shmstore *s = packing_store("s", UINT64_C(1) << 20, false);

	(void)arg;
	put_many(s, "before");
	ENSURE(put_pattern(s, "large before", 300000, 1, 0) == 0);
	limit_to(UINT64_C(1) << 20);
	put_many(s, "after");
	for (unsigned i = 0; i < 20; i++) {
		char key[32];

		snprintf(key, sizeof(key), "large%u", i);
		ENSURE(put_pattern(s, key, 300000, i, 0) == 0);
		ENSURE(get_pattern(s, key, 300000, i) == 0);
	}
	ENSURE(shmstore_close(s) == 0);
	return 0;
}

/* By a put, and by a writer. */
static int large_objects(void *arg)
{
	const uint64_t sizes[] = {4u << 20};
	struct shmstore *s = scratch_store("s");
	struct shmstore_writer *w;

	(void)arg;
	limit_to(UINT64_C(1) << 20);
	ENSURE(put_pattern(s, "fresh", 3u << 20, 1, 0) == -EFBIG);
	ENSURE(strstr(shmstore_error_detail(), "ulimit -f") &&
	       strstr(shmstore_error_detail(), "is 1048576 bytes"));
	ENSURE(shmstore_create(s, KEY("made"), 100, sizes, 1, 0, &w) == -EFBIG);
	ENSURE(put_pattern(s, "small", 4096, 1, 0) == 0);
	ENSURE(count_objects(s) == 1);
	ENSURE(shmstore_close(s) == 0);
	return 0;
}

Test(file_size_signal, small_objects_are_packed_in_smaller_segments)
{
	const rlim_t limits[] = {1 << 20, 100 << 10};

	shmstore_partition_unref(scratch_partition());
	for (unsigned i = 0; i < 2; i++)
		cr_assert_eq(in_child(small_objects, (void *)(uintptr_t)&limits[i]), 0);
	ensure_nothing_left();
}

Test(file_size_signal, a_limit_that_comes_later_ends_nobody)
{
	shmstore_partition_unref(scratch_partition());
	cr_assert_eq(in_child(limit_comes_later, NULL), 0);
	ensure_nothing_left();
}

Test(file_size_signal, large_objects_are_an_error)
{
	shmstore_partition_unref(scratch_partition());
	cr_assert_eq(in_child(large_objects, NULL), 0);
	ensure_nothing_left();
}
