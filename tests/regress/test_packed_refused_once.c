/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where no further segment could be mapped (ulimit -v), or a store had as many as it can tell, each
 * put of a small object scanned all segments, and made one only to take it apart: 7 ms, and then
 * the object was a file after all.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

#include "api.h"
#include "interpose.h"

#define N_PUTS 2000

static bool armed;
static unsigned n_refused;

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
	typedef void *fn(void *, size_t, int, int, int, off_t);

	/* Segments begin with 128 KiB. */
	if (armed && (flags & MAP_TYPE) == MAP_SHARED && fd >= 0 && size > 65536) {
		n_refused++;
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return NEXT(fn *, "mmap")(at, size, protection, flags, fd, offset);
}

static uint64_t now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec;
}

Test(packed_refused_once, is_not_tried_by_each_put)
{
	struct shmstore *s = packing_store("s", UINT64_C(1) << 20, false);
	uint64_t began;
	char key[16];

	cr_assert_eq(put_pattern(s, "first", 1000, 1, 0), 0);
	cr_assert_eq(count_packed_objects(s), 1);
	armed = true;
	began = now_s();
	for (unsigned i = 0; i < N_PUTS; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		cr_assert_eq(put_pattern(s, key, 1000, i, 0), 0);
	}
	/* Again after a second, as it may be possible then. */
	cr_assert_gt(n_refused, 0);
	cr_assert_leq(n_refused, 4 * (2 + now_s() - began), "%u maps", n_refused);
	for (unsigned i = 0; i < N_PUTS; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		cr_assert_eq(get_pattern(s, key, 1000, i), 0);
	}
	armed = false;
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
