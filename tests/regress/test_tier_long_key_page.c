/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A demotion may need a page of the partition: for the long key of any name that the object has,
 * whichever name is asked for. On a partition without one more page it said "full" and no more, as
 * if the object itself had no room.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "api.h"
#include "tiered.h"

enum {
	SIZE = 1 << 20
};

static char long_key[400];

/* All that is free, into a file beside the stores. Its descriptor. */
static int take_all_pages(void)
{
	static const char page[4096] = {1};
	char path[SCRATCH_PATH];
	int fd;

	snprintf(path, sizeof(path), "%s/filler", scratch_dir(NULL));
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	cr_assert_geq(fd, 0);
	cr_assert_eq(unlink(path), 0);
	while (write(fd, page, sizeof(page)) == (ssize_t)sizeof(page))
		;
	cr_assert_eq(errno, ENOSPC);
	return fd;
}

Test(tier_long_key_page, sentence_says_what_is_missing_and_the_object_stays)
{
	struct shmstore_ticket ticket;
	struct shmstore *s, *t;
	int filler;

	scratch_dir("size=32m");
	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own\n");
	TIERED_OR_SKIP();
	memset(long_key, 'k', sizeof(long_key) - 1);
	s = scratch_store("s");
	t = scratch_store("t");
	cr_assert_eq(put_pattern(s, "short", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("short"), 60000, &ticket), 0);
	cr_assert_eq(shmstore_adopt(t, KEY(long_key), &ticket, 0), 0);
	cr_assert_eq(put_pattern(s, "other", SIZE, 2, 0), 0);
	filler = take_all_pages();

	cr_assert_eq(shmstore_demote(s, KEY("short"), 0), -ENOSPC);
	cr_assert_not_null(strstr(shmstore_error_detail(), "long key"), "it says: %s",
			   shmstore_error_detail());
	cr_assert_str_empty(shmstore_error_path(), "the disk is not what is full");
	cr_assert_eq(shmstore_locate(s, KEY("short")), SHMSTORE_IN_MEMORY);
	cr_assert_eq(get_pattern(t, long_key, SIZE, 1), 0);
	/* The error's advice helps. */
	cr_assert_eq(shmstore_demote(s, KEY("other"), 0), 0);
	cr_assert_eq(shmstore_demote(s, KEY("short"), 0), 0);
	cr_assert_eq(shmstore_locate(t, KEY(long_key)), SHMSTORE_IN_TIER);
	cr_assert_eq(get_pattern(t, long_key, SIZE, 1), 0);
	close(filler);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(shmstore_close(t), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}
