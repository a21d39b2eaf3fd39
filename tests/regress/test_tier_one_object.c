/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object that was handed over just while it was demoted, or brought back, became two: one
 * for its old name, one for the new one, each with its own memory, and after the next
 * demotion with its own tier file.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "api.h"
#include "interpose.h"
#include "tiered.h"

#define SIZE 300000

/* When hand_over() is called, once. */
static enum when {
	NEVER,
	BEFORE_STUB,
	BEFORE_EXCHANGE,
	AROUND_EXCHANGE,
	BEFORE_MEMORY
} when;

static struct other giver;         /* has "k" */
static struct shmstore *to;        /* its receiver */
static struct shmstore_ticket was; /* by which it got it */

static void hand_over(void)
{
	ENSURE(other_handoff(&giver, "k", 60000, &was) == 0);
	ENSURE(shmstore_adopt(to, KEY("k"), &was, 0) == 0);
}

/* As it is in the giver's objects/ now. */
static void take_stub(void)
{
	struct shmstore_ticket t = was;
	char *part = strstr(t.path, "/handoff/");

	ENSURE(part);
	strcpy(part, "/objects/k");
	ENSURE(shmstore_adopt(to, KEY("stub"), &t, 0) == 0);
}

int symlinkat(const char *text, int dirfd, const char *name)
{
	typedef int fn(const char *, int, const char *);

	if (when == BEFORE_STUB) {
		when = NEVER;
		hand_over();
	}
	return NEXT(fn *, "symlinkat")(text, dirfd, name);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to_name, unsigned flags)
{
	typedef int fn(int, const char *, int, const char *, unsigned);
	enum when now = flags == RENAME_EXCHANGE ? when : NEVER;
	int r;

	if (now == BEFORE_EXCHANGE || now == AROUND_EXCHANGE) {
		when = NEVER;
		hand_over();
	}
	r = NEXT(fn *, "renameat2")(from_fd, from, to_fd, to_name, flags);
	if (now == AROUND_EXCHANGE)
		take_stub();
	return r;
}

/* The memory of what is brought back is a file without a name. */
int openat(int dirfd, const char *name, int flags, ...)
{
	typedef int fn(int, const char *, int, ...);
	struct shmstore_ticket t;
	va_list arguments;

	va_start(arguments, flags);
	mode_t mode = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE
			      ? va_arg(arguments, mode_t)
			      : 0;
	va_end(arguments);
	if (when == BEFORE_MEMORY && (flags & O_TMPFILE) == O_TMPFILE) {
		when = NEVER;
		ENSURE(shmstore_handoff_flags(to, KEY("k"), 60000, SHMSTORE_AS_IS, &t) == 0);
		ENSURE(other_adopt(&giver, "back", &t) == 0);
	}
	return NEXT(fn *, "openat")(dirfd, name, flags, mode);
}

static void evict_all(void)
{
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;

	what.bytes = 1ull << 40;
	shmstore_partition_evict(scratch_partition(), &what, NULL);
}

static void begin(void)
{
	giver = other_start("giver");
	to = scratch_store("to");
	cr_assert_eq(other_put(&giver, "k", SIZE, 1), 0);
}

/* Everything that there is of it can be demoted, as one object, and brought back, as one. */
static void ensure_one(void)
{
	cr_assert_eq(when, NEVER, "it was handed over");
	cr_assert_eq(inode_of("giver", "k"), inode_of("to", "k"));
	evict_all();
	cr_assert_eq(other_locate(&giver, "k"), SHMSTORE_IN_TIER);
	cr_assert_eq(shmstore_locate(to, KEY("k")), SHMSTORE_IN_TIER);
	cr_assert_eq(tiered_count_files(), 1);
	cr_assert_eq(get_pattern(to, "k", SIZE, 1), 0);
	cr_assert_eq(other_get(&giver, "k", SIZE, 1), 0);
	cr_assert_eq(inode_of("giver", "k"), inode_of("to", "k"));
	cr_assert_eq(tiered_count_files(), 1);
	ensure_books_close();
}

static void end(void)
{
	cr_assert_eq(shmstore_close(to), 0);
	cr_assert_eq(other_close(&giver), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

Test(tier_one_object, handed_over_while_it_is_copied_to_the_disk)
{
	TIERED_OR_SKIP();
	begin();
	when = BEFORE_STUB;
	evict_all();
	cr_assert_eq(other_locate(&giver, "k"), SHMSTORE_IN_MEMORY);
	cr_assert_eq(tiered_count_files(), 1, "the copy is kept");
	ensure_one();
	end();
}

Test(tier_one_object, handed_over_while_somebody_asks_for_its_demotion)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	struct shmstore *reader;

	TIERED_OR_SKIP();
	begin();
	options.flags = SHMSTORE_OPEN_READONLY;
	cr_assert_eq(shmstore_open(scratch_partition(), "giver", &options, &reader), 0);
	when = BEFORE_STUB;
	cr_assert_eq(shmstore_demote(reader, KEY("k"), 0), 0, "%s", shmstore_error_detail());
	cr_assert_eq(shmstore_locate(to, KEY("k")), SHMSTORE_IN_TIER,
		     "with the name that it got meanwhile");
	cr_assert_eq(shmstore_close(reader), 0);
	cr_assert_eq(get_pattern(to, "k", SIZE, 1), 0);
	cr_assert_eq(other_get(&giver, "k", SIZE, 1), 0);
	ensure_one();
	end();
}

Test(tier_one_object, handed_over_just_before_the_stub_takes_its_place)
{
	TIERED_OR_SKIP();
	begin();
	when = BEFORE_EXCHANGE;
	evict_all();
	cr_assert_eq(other_locate(&giver, "k"), SHMSTORE_IN_MEMORY);
	ensure_one();
	end();
}

Test(tier_one_object, handed_over_before_and_after_it)
{
	TIERED_OR_SKIP();
	begin();
	when = AROUND_EXCHANGE;
	evict_all();
	cr_assert_eq(other_locate(&giver, "k"), SHMSTORE_IN_MEMORY);
	cr_assert_eq(get_pattern(to, "stub", SIZE, 1), 0);
	cr_assert_eq(inode_of("to", "stub"), inode_of("to", "k"));
	ensure_one();
	end();
}

Test(tier_one_object, handed_over_while_it_is_brought_back)
{
	struct shmstore_ticket t;

	TIERED_OR_SKIP();
	begin();
	cr_assert_eq(other_handoff(&giver, "k", 60000, &t), 0);
	cr_assert_eq(shmstore_adopt(to, KEY("k"), &t, 0), 0);
	cr_assert_eq(other_delete(&giver, "k"), 0);
	evict_all();
	when = BEFORE_MEMORY;
	cr_assert_eq(get_pattern(to, "k", SIZE, 1), 0);
	cr_assert_eq(when, NEVER, "it was handed over");
	cr_assert_eq(other_get(&giver, "back", SIZE, 1), 0);
	cr_assert_eq(shmstore_locate(to, KEY("k")), SHMSTORE_IN_MEMORY);
	cr_assert_eq(inode_of("giver", "back"), inode_of("to", "k"));
	ensure_books_close();
	end();
}
