/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a store were made before its page: a gc that had walked past before the page came
 * took the empty ones for torn, and the live store lost its handoff/. Now a part exists only where
 * a page does: at its making and at its going.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "interpose.h"

static int n_made, n_gone, n_wrong;

static bool is_part(const char *name)
{
	return strcmp(name, "objects") == 0 || strcmp(name, "recycle") == 0 ||
	       strcmp(name, "handoff") == 0;
}

static bool has_page(int dirfd)
{
	return faccessat(dirfd, ".store", F_OK, 0) == 0;
}

int mkdirat(int dirfd, const char *name, mode_t mode)
{
	typedef int fn(int, const char *, mode_t);

	if (is_part(name)) {
		n_made++;
		n_wrong += !has_page(dirfd);
	}
	return NEXT(fn *, "mkdirat")(dirfd, name, mode);
}

int unlinkat(int dirfd, const char *name, int flags)
{
	typedef int fn(int, const char *, int);

	if (is_part(name)) {
		n_gone++;
		n_wrong += !has_page(dirfd);
	}
	return NEXT(fn *, "unlinkat")(dirfd, name, flags);
}

Test(parts_under_page, made_after_and_removed_before_it)
{
	struct shmstore *s = scratch_store("s");

	cr_assert_geq(n_made, 3);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_geq(n_gone, 3);
	cr_assert_eq(n_wrong, 0);
	ensure_nothing_left();
}
