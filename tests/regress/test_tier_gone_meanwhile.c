/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object that its owner deleted while a reader was looking at it was called damaged: a demoted
 * object whose tier file went after its stub had been read, an object whose long key's sidecar went
 * after the object had been opened. And a demotion said that there was no such key when it was a
 * second store that had gone, which had had the object under a long key.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>

#include "api.h"
#include "interpose.h"
#include "tiered.h"

#define SIZE 200000u

static struct other *owner; /* NULL: it has deleted what it deletes */
static const char *key;     /* NULL: it closes its store */
static bool (*is_moment)(const char *name);

static void before_open(const char *name)
{
	struct other *o = owner;

	if (o && is_moment(name)) {
		owner = NULL;
		cr_assert_eq(key ? other_delete(o, key) : other_close(o), 0);
	}
}

/* The compiler makes this of a call whose flags it does not know. */
int __openat_2(int dirfd, const char *name, int flags);
int __openat_2(int dirfd, const char *name, int flags)
{
	typedef int fn(int, const char *, int);

	before_open(name);
	return NEXT(fn *, "__openat_2")(dirfd, name, flags);
}

int openat(int dirfd, const char *name, int flags, ...)
{
	typedef int fn(int, const char *, int, ...);
	va_list list;
	mode_t mode;

	va_start(list, flags);
	mode = va_arg(list, mode_t);
	va_end(list);
	before_open(name);
	return NEXT(fn *, "openat")(dirfd, name, flags, mode);
}

static bool is_tier_file(const char *name)
{
	return strlen(name) == 16 && strspn(name, "0123456789abcdef") == 16;
}

static bool is_sidecar(const char *name)
{
	return strncmp(name, "%k", 2) == 0;
}

static void get_while_it_goes(struct other *o, const char *what, bool (*moment)(const char *name))
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	struct shmstore_view *v;
	struct shmstore *s;

	options.flags = SHMSTORE_OPEN_READONLY;
	cr_assert_eq(shmstore_open(scratch_partition(), "o", &options, &s), 0);
	is_moment = moment;
	key = what;
	owner = o;
	int r = shmstore_get(s, KEY(what), 0, &v);
	cr_assert_eq(r, -ENOENT, "%d, %s", r, shmstore_error_detail());
	cr_assert_null(owner, "the moment did not come");
	cr_assert_eq(shmstore_close(s), 0);
}

Test(tier_gone_meanwhile, a_tier_file_that_goes_is_not_missing)
{
	scratch_dir("size=64m");
	TIERED_OR_SKIP();
	struct other o = other_start("o");

	cr_assert_eq(other_put(&o, "k", SIZE, 1), 0);
	cr_assert_eq(other_demote(&o, "k"), 0);
	get_while_it_goes(&o, "k", is_tier_file);
	cr_assert_eq(other_close(&o), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

/* A key of three bytes each in a file name, too long for one. */
static const char *long_key(void)
{
	static char hashed[101];

	memset(hashed, '/', sizeof(hashed) - 1);
	return hashed;
}

Test(tier_gone_meanwhile, a_sidecar_that_goes_is_no_wrong_key)
{
	const char *hashed = long_key();
	struct shmstore_ticket t;
	struct shmstore *s = scratch_store("s");
	struct other o = other_start("o");

	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("k"), 60000, &t), 0);
	cr_assert_eq(other_adopt(&o, hashed, &t), 0);
	get_while_it_goes(&o, hashed, is_sidecar);
	cr_assert_eq(other_close(&o), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(tier_gone_meanwhile, a_store_that_goes_takes_no_other_store_s_key_along)
{
	struct shmstore_ticket t;

	scratch_dir("size=64m");
	TIERED_OR_SKIP();
	struct shmstore *s = scratch_store("s");
	struct other o = other_start("o");

	cr_assert_eq(other_put(&o, long_key(), SIZE, 1), 0);
	cr_assert_eq(other_handoff(&o, long_key(), 60000, &t), 0);
	cr_assert_eq(shmstore_adopt(s, KEY("k"), &t, 0), 0);
	is_moment = is_sidecar;
	key = NULL;
	owner = &o;
	int r = shmstore_demote(s, KEY("k"), 0);
	cr_assert_null(owner, "the moment did not come");
	cr_assert_eq(r, 0, "%d, %s", r, shmstore_error_detail());
	cr_assert_eq(shmstore_locate(s, KEY("k")), SHMSTORE_IN_TIER);
	cr_assert_eq(get_pattern(s, "k", SIZE, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}
