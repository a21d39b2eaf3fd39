/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a dead owner's kept store dropped all its objects where the page could not be read
 * for want of a descriptor. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <unistd.h>

#include "api.h"
#include "interpose.h"

/* The second opening of the page is the one that asks whether to keep; whichever it
 * is, none may lose anything. */
ssize_t pread(int fd, void *buf, size_t size, off_t offset)
{
	typedef ssize_t fn(int, void *, size_t, off_t);

	if (interpose_now()) {
		errno = EIO;
		return -1;
	}
	return NEXT(fn *, "pread")(fd, buf, size, offset);
}

static int leave_a_kept_store(void *arg)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s;

	o.keep = true;
	o.pack_max = *(uint64_t *)arg;
	ENSURE(shmstore_open(p, "s", &o, &s) == 0);
	ENSURE(put_pattern(s, "a", 5000, 1, 0) == 0);
	_exit(0);
}

static void check(uint64_t pack_max)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	int n_failed = 0;

	o.keep = true;
	o.pack_max = pack_max;
	cr_assert_eq(in_child(leave_a_kept_store, &pack_max), 0);
	for (int n = 1; n <= 8; n++) {
		struct shmstore *s = NULL;

		interpose_countdown = n;
		int r = shmstore_open(p, "s", &o, &s);
		interpose_countdown = 0;
		n_failed += r < 0;
		if (r < 0)
			cr_assert_eq(shmstore_open(p, "s", &o, &s), 0);
		cr_assert_eq(get_pattern(s, "a", 5000, 1), 0, "lost at read %d", n);
		cr_assert_eq(shmstore_close(s), 0);
	}
	cr_assert_gt(n_failed, 0);
	shmstore_partition_unref(p);
}

Test(kept_page_unreadable, loses_nothing)
{
	check(0);
}

/* The count of the objects at the opening took a segment that could not be read for none. */
Test(kept_page_unreadable, loses_no_packed_object)
{
	check(1u << 20);
}
