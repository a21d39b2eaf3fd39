/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object that was pinned while it was being demoted: the pin returned 0, and the object left
 * memory all the same, a packed one as well as a file; and a packed object that was becoming a file
 * meanwhile became one that was not pinned.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>

#include "api.h"
#include "interpose.h"
#include "tiered.h"

/* pins "a" before a file is made that has no name yet: the n-th of them (interpose.h) */
static struct shmstore *pins;

int openat(int dirfd, const char *name, int flags, ...)
{
	typedef int fn(int, const char *, int, ...);
	bool made = (flags & O_TMPFILE) == O_TMPFILE;
	struct shmstore *s = pins;
	va_list arguments;

	va_start(arguments, flags);
	mode_t mode = (flags & O_CREAT) || made ? va_arg(arguments, mode_t) : 0;
	va_end(arguments);
	if (s && (made || strncmp(name, "tmp-", 4) == 0) && interpose_now()) {
		pins = NULL;
		ENSURE(shmstore_pin(s, KEY("a"), true) == 0);
	}
	return NEXT(fn *, "openat")(dirfd, name, flags, mode);
}

static struct shmstore *store_with_object(uint64_t pack_max, int nth)
{
	struct shmstore *s = packing_store("s", pack_max, false);

	cr_assert_eq(put_pattern(s, "a", 20000, 1, 0), 0);
	pins = s;
	interpose_countdown = nth;
	return s;
}

static void ensure_pinned(struct shmstore *s)
{
	cr_assert_null(pins, "nothing was demoted");
	cr_assert_eq(shmstore_locate(s, KEY("a")), SHMSTORE_IN_MEMORY);
	cr_assert_eq(shmstore_demote(s, KEY("a"), 0), -EPERM);
	cr_assert_eq(get_pattern(s, "a", 20000, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
}

static void evicts(uint64_t pack_max)
{
	struct shmstore_evict everything = SHMSTORE_EVICT_INIT;
	struct shmstore *s;
	int rc;

	TIERED_OR_SKIP();
	/* the first one shows what the tier's file system can do */
	s = store_with_object(pack_max, 2);
	everything.bytes = 1ull << 40;
	rc = shmstore_partition_evict(scratch_partition(), &everything, NULL);
	cr_assert(rc == 0 || rc == -ENOSPC, "%d", rc);
	ensure_pinned(s);
}

Test(pin_beside_demotion, packed_object_stays)
{
	evicts(64u << 10);
}

Test(pin_beside_demotion, file_stays)
{
	evicts(0);
}

Test(pin_beside_demotion, object_that_becomes_a_file_is_pinned)
{
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = store_with_object(64u << 10, 1);
	cr_assert_eq(shmstore_demote(s, KEY("a"), 0), -EPERM);
	ensure_pinned(s);
}
