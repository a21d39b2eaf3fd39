/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Before Linux 6.11 a signal ends fallocate(), which gives back what it had taken, and create()
 * began anew: under a timer's signals a large object never came to be. Here the call is interrupted
 * as by a timer that lets it take a MiB at most.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "api.h"
#include "interpose.h"

static unsigned n_interrupted;

int fallocate(int fd, int mode, off_t offset, off_t size)
{
	typedef int fn(int, int, off_t, off_t);

	if (mode == 0 && size > 1 << 20) {
		/* Tried for ever: the test fails, it does not hang. */
		cr_assert_lt(++n_interrupted, 1000u, "begun a thousand times");
		errno = EINTR;
		return -1;
	}
	return NEXT(fn *, "fallocate")(fd, mode, offset, size);
}

Test(allocate_signals, a_large_object_comes_to_be_under_a_timers_signals)
{
	const uint64_t sizes[] = {(64u << 20) + 12345};
	struct shmstore *s = scratch_store("s");
	struct shmstore_writer *w;
	uint64_t size;

	cr_assert_eq(shmstore_create(s, KEY("x"), 100, sizes, 1, 0, &w), 0);
	pattern_fill(shmstore_writer_buffer(w, 0, &size), sizes[0], 9);
	cr_assert_eq(size, sizes[0]);
	cr_assert_eq(shmstore_seal(w), 0);
	cr_assert_gt(n_interrupted, 0u);
	struct shmstore_view *v = get_view(s, "x", 0);
	cr_assert_eq(pattern_check(shmstore_view_buffer(v, 0, NULL), sizes[0], 9), sizes[0]);
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_close(s), 0);
}
