/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A demoted object was adopted by its path in its owner's objects/ while the owner deleted it: the
 * adopter was left with a stub without a tier file. The kernel had resolved the name before it
 * went, and the anchor kept the stub linkable when the owner had counted its names already.
 *
 * That instant is made here: linkat() keeps the source open, the owner does its part, and the
 * link is made through the descriptor from within the owner's unlinkat(). Owner and adopter
 * are two stores of this process.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "interpose.h"
#include "partition.h"
#include "tiered.h"

#define SIZE 200000u

typedef int linkat_fn(int, const char *, int, const char *, int);
typedef int unlinkat_fn(int, const char *, int);

static void (*owner_acts)(void); /* NULL: it has */
static struct shmstore *owner;
/* The adopter's link that is under way. */
static int source_fd = -1, link_dir, link_result;
static const char *link_name;
static bool (*is_moment)(const char *name);

static void link_now(void)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", source_fd);
	link_result =
		NEXT(linkat_fn *, "linkat")(AT_FDCWD, path, link_dir, link_name, AT_SYMLINK_FOLLOW);
	close(source_fd);
	source_fd = -1;
}

int linkat(int old_dir, const char *old, int new_dir, const char *new, int flags)
{
	void (*act)(void) = owner_acts;

	if (!act || strcmp(old, "k") != 0 ||
	    faccessat(new_dir, new, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return NEXT(linkat_fn *, "linkat")(old_dir, old, new_dir, new, flags);
	owner_acts = NULL;
	source_fd = openat(old_dir, old, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	cr_assert_geq(source_fd, 0);
	link_dir = new_dir;
	link_name = new;
	act();
	if (source_fd >= 0)
		link_now();
	return link_result;
}

int unlinkat(int dir, const char *name, int flags)
{
	bool is_now = source_fd >= 0 && is_moment(name);
	int r;

	/* The anchor still is there, the name no more. */
	if (is_now && strcmp(name, "k") != 0)
		link_now();
	r = NEXT(unlinkat_fn *, "unlinkat")(dir, name, flags);
	if (is_now && source_fd >= 0)
		link_now();
	return r;
}

static bool is_anchor(const char *name)
{
	return strlen(name) > 5 && strcmp(name + strlen(name) - 5, ".stub") == 0;
}

static bool is_name(const char *name)
{
	return strcmp(name, "k") == 0;
}

static bool is_never(const char *name)
{
	(void)name;
	return false;
}

static void deletes(void)
{
	cr_assert_eq(shmstore_delete(owner, KEY("k")), 0);
}

static void promotes(void)
{
	cr_assert_eq(get_pattern(owner, "k", SIZE, 1), 0);
}

static void replaces(void)
{
	cr_assert_eq(put_pattern(owner, "k", SIZE, 3, SHMSTORE_REPLACE), 0);
}

/* The ticket of the owner's demoted object k, by its path. */
static void object_path(struct shmstore_ticket *ret)
{
	struct shms_stub stub;

	owner = scratch_store("o");
	cr_assert_eq(put_pattern(owner, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_demote(owner, KEY("k"), 0), 0);
	cr_assert(tiered_stub("o", "objects", "k", &stub));
	ret->header_size = stub.header_size;
	ret->buffer_size = stub.buffer_size;
	snprintf(ret->path, sizeof(ret->path), "%s/k", scratch_store_path("o", "objects"));
}

/* Adopts as mine while the owner acts. */
static int adopt_while(struct shmstore *s, unsigned flags, void (*act)(void),
		       bool (*moment)(const char *name))
{
	struct shmstore_ticket t;
	int r;

	object_path(&t);
	is_moment = moment;
	owner_acts = act;
	r = shmstore_adopt(s, KEY("mine"), &t, flags);
	cr_assert_null(owner_acts, "the moment did not come");
	cr_assert_eq(link_result, 0, "the kernel did not link it");
	return r;
}

static void end(struct shmstore *s)
{
	cr_assert_eq(shmstore_close(owner), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

static void deleted(bool (*moment)(const char *name))
{
	scratch_dir("size=64m");
	TIERED_OR_SKIP();
	struct shmstore *s = scratch_store("s");

	cr_assert_eq(adopt_while(s, 0, deletes, moment), -ESTALE);
	cr_assert_eq(shmstore_contains(s, KEY("mine")), 0);
	cr_assert_eq(count_objects(s), 0);
	ensure_tier_empty();
	end(s);
}

Test(tier_adopt_deleted, after_the_owner_has_counted_the_names)
{
	deleted(is_anchor);
}

/* The owner leaves the tier file to the adopter then. */
Test(tier_adopt_deleted, before_the_owner_counts_the_names)
{
	deleted(is_name);
}

Test(tier_adopt_deleted, what_was_to_be_replaced_stays)
{
	scratch_dir("size=64m");
	TIERED_OR_SKIP();
	struct shmstore *s = scratch_store("s");

	cr_assert_eq(put_pattern(s, "mine", 5000, 2, 0), 0);
	cr_assert_eq(adopt_while(s, SHMSTORE_REPLACE, deletes, is_anchor), -ESTALE);
	cr_assert_eq(get_pattern(s, "mine", 5000, 2), 0);
	ensure_tier_empty();
	end(s);
}

Test(tier_adopt_deleted, brought_back_meanwhile_it_is_adopted)
{
	scratch_dir("size=64m");
	TIERED_OR_SKIP();
	struct shmstore *s = scratch_store("s");

	cr_assert_eq(adopt_while(s, 0, promotes, is_never), 0);
	cr_assert_eq(shmstore_locate(s, KEY("mine")), SHMSTORE_IN_MEMORY);
	cr_assert_eq(get_pattern(s, "mine", SIZE, 1), 0);
	end(s);
}

Test(tier_adopt_deleted, replaced_meanwhile_the_new_one_is_adopted)
{
	scratch_dir("size=64m");
	TIERED_OR_SKIP();
	struct shmstore *s = scratch_store("s");

	cr_assert_eq(adopt_while(s, 0, replaces, is_anchor), 0);
	cr_assert_eq(get_pattern(s, "mine", SIZE, 3), 0);
	end(s);
}
