/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that demoted or brought back another store's object and was killed between the
 * exchange of the names and the booking left that store's ledger wrong, for as long as its owner
 * lived. And a process that opened a kept store counted its objects, while another that had just
 * moved one of them booked that after the count; where that one was stopped, also after a second.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "books.h"
#include "interpose.h"
#include "page.h"
#include "sys.h"
#include "tiered.h"

#define SIZE 300000

/* Of the exchange that interpose_countdown counts to. */
static enum moment {
	BEFORE,
	AFTER,
	AFTER_UNLINK, /* the object's file has gone from clean/, too */
	/* then, too: lets another process go on until it has done its part, or does not go on */
	WAIT,
	STOPPED, /* then, too: until another process has done its part, however long that takes */
} moment;
static bool exchanged;
static int go[2], done[2];

static void let_another_go_on(void)
{
	struct pollfd p = {.fd = done[0], .events = POLLIN};

	ENSURE(write(go[1], "g", 1) == 1);
	/* It is to wait for us, which cannot be seen: we wait for what must not come. */
	poll(&p, 1, moment == STOPPED ? -1 : 300);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
	typedef int fn(int, const char *, int, const char *, unsigned);
	bool now = flags == RENAME_EXCHANGE && interpose_now();
	int r;

	if (now && moment == BEFORE)
		_exit(7);
	r = NEXT(fn *, "renameat2")(from_fd, from, to_fd, to, flags);
	if (now && moment == AFTER)
		_exit(7);
	exchanged = exchanged || now;
	return r;
}

int unlinkat(int dirfd, const char *name, int flags)
{
	typedef int fn(int, const char *, int);
	int r = NEXT(fn *, "unlinkat")(dirfd, name, flags);

	if (exchanged && moment == AFTER_UNLINK)
		_exit(7);
	if (exchanged && (moment == WAIT || moment == STOPPED))
		let_another_go_on();
	exchanged = false;
	return r;
}

/* ---- who moves ------------------------------------------------------------------------------- */

static void evict_all(void)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;

	what.bytes = 1ull << 40;
	shmstore_partition_evict(p, &what, NULL);
	shmstore_partition_unref(p);
}

static int evict(void *arg)
{
	interpose_countdown = *(int *)arg;
	evict_all();
	return 0;
}

static struct shmstore *look_only(void)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s;

	o.flags = SHMSTORE_OPEN_READONLY;
	ENSURE(shmstore_open(p, "s", &o, &s) == 0);
	shmstore_partition_unref(p);
	return s;
}

static int bring_back(void *arg)
{
	struct shmstore *s = look_only();

	interpose_countdown = *(int *)arg;
	return -shmstore_promote(s, KEY("k"), 0);
}

/* ---- who looks next -------------------------------------------------------------------------- */

static void by_owner(struct shmstore *s)
{
	cr_assert_eq(put_pattern(s, "next", SIZE, 2, 0), 0);
}

static int demote_next(void *arg)
{
	(void)arg;
	return -shmstore_demote(look_only(), KEY("next"), 0);
}

static void by_another_mover(struct shmstore *s)
{
	cr_assert_eq(shmstore_pin(s, KEY("next"), false), 0);
	cr_assert_eq(in_child(demote_next, NULL), 0);
}

static int ignore(const struct shmstore_store_books *b, void *arg)
{
	(void)b;
	(void)arg;
	return 0;
}

static void by_books(struct shmstore *s)
{
	struct shmstore_partition *p = scratch_partition();

	(void)s;
	cr_assert_eq(shmstore_partition_books(p, ignore, NULL, NULL), 0);
	shmstore_partition_unref(p);
}

static void (*const next[])(struct shmstore *s) = {by_owner, by_another_mover, by_books};

/* ---- the ledger ------------------------------------------------------------------------------ */

static int64_t drift(const char *store)
{
	int fd = open(scratch_store_path(store, ""), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct shmstore_store_books books;
	struct shms_page page;

	ENSURE(fd >= 0 && shms_page_read(fd, &page) == 0 && shms_books_store(fd, &books) == 0);
	close(fd);
	return (int64_t)(shms_page_linked(&page) - books.linked);
}

/* Everything can be moved again, and deleted, and the ledger ends at 0. */
static void end(struct shmstore *s)
{
	evict_all();
	cr_assert_eq(drift("s"), 0);
	cr_assert_eq(get_pattern(s, "k", SIZE, 1), 0);
	cr_assert_eq(drift("s"), 0);
	cr_assert_eq(count_in_store("s", "clean"), 1);
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	shmstore_delete(s, KEY("next"));
	shmstore_delete(s, KEY("alias"));
	cr_assert_eq(drift("s"), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

static struct shmstore *begin(void)
{
	struct shmstore *s = scratch_plain_store("s");

	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	return s;
}

/* The one that is killed leaves it alone. */
static void put_pinned(struct shmstore *s, const char *key)
{
	cr_assert_eq(put_pattern(s, key, SIZE, 2, 0), 0);
	cr_assert_eq(shmstore_pin(s, KEY(key), true), 0);
}

static void demoter_killed(enum moment when)
{
	int first = 1;

	TIERED_OR_SKIP();
	moment = when;
	for (size_t i = 0; i < sizeof(next) / sizeof(*next); i++) {
		struct shmstore *s = begin();

		if (next[i] == by_another_mover)
			put_pinned(s, "next");
		cr_assert_eq(in_child(evict, &first), 7);
		next[i](s);
		cr_assert_eq(drift("s"), 0, "%d of %zu: %lld", (int)when, i, (long long)drift("s"));
		end(s);
	}
}

Test(tier_mover_killed, before_the_stub_takes_its_place)
{
	demoter_killed(BEFORE);
}

Test(tier_mover_killed, after_it)
{
	demoter_killed(AFTER);
}

Test(tier_mover_killed, after_the_object_has_gone)
{
	demoter_killed(AFTER_UNLINK);
}

static void promoter_killed(enum moment when)
{
	int first = 1;

	TIERED_OR_SKIP();
	moment = when;
	for (size_t i = 0; i < sizeof(next) / sizeof(*next); i++) {
		struct shmstore *s = begin();

		cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0);
		if (next[i] == by_another_mover)
			put_pinned(s, "next");
		cr_assert_eq(in_child(bring_back, &first), 7);
		next[i](s);
		cr_assert_eq(drift("s"), 0, "%d of %zu: %lld", (int)when, i, (long long)drift("s"));
		end(s);
	}
}

Test(tier_mover_killed, before_the_object_is_back)
{
	promoter_killed(BEFORE);
}

Test(tier_mover_killed, after_the_object_is_back)
{
	promoter_killed(AFTER);
}

/* Two names in one store, one in another: at each of the three exchanges. */
Test(tier_mover_killed, at_each_name_of_an_object)
{
	TIERED_OR_SKIP();
	for (int n = 1; n <= 3; n++) {
		for (moment = BEFORE; moment <= AFTER; moment++) {
			struct shmstore *s = begin(), *t = scratch_plain_store("t");
			struct shmstore_ticket ticket;

			cr_assert_eq(shmstore_handoff(s, KEY("k"), 60000, &ticket), 0);
			cr_assert_eq(shmstore_adopt(s, KEY("alias"), &ticket, 0), 0);
			cr_assert_eq(shmstore_handoff(s, KEY("k"), 60000, &ticket), 0);
			cr_assert_eq(shmstore_adopt(t, KEY("k"), &ticket, 0), 0);
			cr_assert_eq(links_of("s", "k"), 3);
			cr_assert_eq(in_child(evict, &n), 7);
			by_owner(s);
			by_owner(t);
			cr_assert_eq(drift("s"), 0, "exchange %d, %d: %lld", n, (int)moment,
				     (long long)drift("s"));
			cr_assert_eq(drift("t"), 0, "exchange %d, %d: %lld", n, (int)moment,
				     (long long)drift("t"));
			cr_assert_eq(get_pattern(s, "alias", SIZE, 1), 0);
			cr_assert_eq(get_pattern(t, "k", SIZE, 1), 0);
			cr_assert_eq(drift("s"), 0);
			cr_assert_eq(drift("t"), 0);
			cr_assert_eq(shmstore_close(t), 0);
			end(s);
		}
	}
}

/* ---- a kept store ---------------------------------------------------------------------------- */

static struct shmstore *open_kept(void)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s;

	o.keep = true;
	ENSURE(shmstore_open(p, "s", &o, &s) == 0);
	shmstore_partition_unref(p);
	return s;
}

/* Killed in its own demotion, if that is asked for. */
static int leave_kept(void *arg)
{
	struct shmstore *s = open_kept();

	ENSURE(put_pattern(s, "k", SIZE, 1, 0) == 0);
	/* A ledger below 0 reads as 0: this object keeps it above. */
	ENSURE(put_pattern(s, "stays", 2 * SIZE, 2, 0) == 0 &&
	       shmstore_pin(s, KEY("stays"), true) == 0);
	interpose_countdown = *(int *)arg;
	if (interpose_countdown)
		shmstore_demote(s, KEY("k"), 0);
	_exit(7);
}

/* Leaves a kept store behind, of which another process has just moved an object:
 * it has not booked that yet. */
static pid_t mover_begins(enum moment when)
{
	int first = 1, no = 0;
	pid_t mover;
	char c;

	cr_assert_eq(in_child(leave_kept, &no), 7);
	cr_assert(pipe2(go, O_CLOEXEC) == 0 && pipe2(done, O_CLOEXEC) == 0);
	moment = when;
	mover = fork();
	if (mover == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(evict(&first));
	}
	cr_assert_eq(read(go[0], &c, 1), 1);
	return mover;
}

static void mover_ends(pid_t mover)
{
	int status;

	cr_assert_eq(write(done[1], "d", 1), 1);
	cr_assert_eq(waitpid(mover, &status, 0), mover);
	cr_assert_eq(status, 0);
}

Test(tier_mover_killed, a_kept_store_is_opened_while_its_object_is_moved)
{
	struct shmstore *s;

	TIERED_OR_SKIP();
	pid_t mover = mover_begins(WAIT);
	s = open_kept();
	mover_ends(mover);
	cr_assert_eq(shmstore_locate(s, KEY("k")), SHMSTORE_IN_TIER);
	cr_assert_eq(drift("s"), 0, "%lld", (long long)drift("s"));
	cr_assert_eq(shmstore_close(s), 0);
}

Test(tier_mover_killed, a_kept_store_is_not_opened_while_who_moves_its_object_is_stopped)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s;

	TIERED_OR_SKIP();
	pid_t mover = mover_begins(STOPPED);
	/* Whether it is to be kept is not said: it stays kept as long as no open has succeeded. */
	cr_assert_eq(shmstore_open(p, "s", &o, &s), -ETIMEDOUT);
	shmstore_partition_unref(p);
	mover_ends(mover);
	s = open_kept();
	cr_assert_eq(drift("s"), 0, "%lld", (long long)drift("s"));
	cr_assert_eq(get_pattern(s, "k", SIZE, 1), 0);
	cr_assert_eq(get_pattern(s, "stays", 2 * SIZE, 2), 0);
	cr_assert_eq(drift("s"), 0, "%lld", (long long)drift("s"));
	cr_assert_eq(shmstore_close(s), 0);
}

Test(tier_mover_killed, a_kept_store_whose_owner_was_killed_while_it_demoted)
{
	int first = 1;
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s;

	TIERED_OR_SKIP();
	moment = AFTER;
	cr_assert_eq(in_child(leave_kept, &first), 7);
	s = open_kept();
	cr_assert_eq(shmstore_partition_gc(p, 0, NULL), 0);
	cr_assert_eq(drift("s"), 0, "%lld", (long long)drift("s"));
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
}

/* ---- moved there and back -------------------------------------------------------------------- */

/* Others had moved as much back as away: what the owner knew of its names' inodes looked
 * as if it were true still. */
Test(tier_mover_killed, both_names_moved_by_another_and_one_brought_back)
{
	struct shmstore_ticket ticket;
	int none = 0;

	TIERED_OR_SKIP();
	struct shmstore *s = begin();
	cr_assert_eq(shmstore_handoff(s, KEY("k"), 60000, &ticket), 0);
	cr_assert_eq(shmstore_adopt(s, KEY("alias"), &ticket, 0), 0);
	cr_assert_eq(in_child(evict, &none), 0);
	cr_assert_eq(shmstore_locate(s, KEY("k")), SHMSTORE_IN_TIER);
	cr_assert_eq(in_child(bring_back, &none), 0);
	cr_assert_eq(drift("s"), 0);
	cr_assert_eq(get_pattern(s, "alias", SIZE, 1), 0);
	cr_assert_eq(inode_of("s", "alias"), inode_of("s", "k"));
	cr_assert_eq(drift("s"), 0, "%lld", (long long)drift("s"));
	end(s);
}
