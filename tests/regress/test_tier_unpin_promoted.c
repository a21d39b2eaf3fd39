/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object that is unpinned by a name that is a stub, and is brought back just when the stub is
 * about to be read: the unpin said -EIO.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>

#include "api.h"
#include "interpose.h"
#include "tiered.h"

static struct shmstore *other; /* set: brings "a" back before the next stub is opened */

/* The library opens the name itself (O_NOFOLLOW) to read a stub. */
int openat(int dirfd, const char *name, int flags, ...)
{
	typedef int fn(int, const char *, int, ...);
	struct shmstore *s = other;
	va_list arguments;

	if (s && (flags & O_PATH) && (flags & O_NOFOLLOW) && !(flags & O_DIRECTORY)) {
		other = NULL;
		ENSURE(shmstore_promote(s, KEY("a"), 0) == 0);
	}
	va_start(arguments, flags);
	mode_t mode = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE
			      ? va_arg(arguments, mode_t)
			      : 0;
	va_end(arguments);
	return NEXT(fn *, "openat")(dirfd, name, flags, mode);
}

Test(tier_unpin_promoted, it_is_looked_at_again)
{
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = scratch_store("s");
	cr_assert_eq(put_pattern(s, "a", 100000, 1, 0), 0);
	cr_assert_eq(shmstore_pin(s, KEY("a"), true), 0);
	cr_assert_eq(shmstore_pin(s, KEY("a"), false), 0);
	cr_assert_eq(shmstore_demote(s, KEY("a"), 0), 0);
	other = s;
	cr_assert_eq(shmstore_pin(s, KEY("a"), false), 0);
	cr_assert_null(other);
	cr_assert_eq(shmstore_locate(s, KEY("a")), SHMSTORE_IN_MEMORY);
	cr_assert_eq(shmstore_demote(s, KEY("a"), 0), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
