/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store's owner died, and left a child that had a view of a packed object. The place that
 * the child kept locked could not be given back when the store was opened anew, or taken
 * apart by gc. Until the child ended its objects were listed, counted and read as the new
 * owner's, who did not have them.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"

#define SIZE 5000

static int pair[2]; /* the test's end, the children's */
/* a pidfd: its locks are gone when it has ended, and not yet when its sockets are closed */
static int child = -1;

static struct shmstore *open_store(unsigned flags)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s;

	o.pack_max = 64u << 10;
	o.flags = flags;
	ENSURE(shmstore_open(scratch_partition(), "heir", &o, &s) == 0);
	return s;
}

/* A child of the owner, with its view. It ends when the test closes its end. */
static void stay(struct shmstore_view *v)
{
	pid_t own = getpid();
	char byte;

	close(pair[0]);
	ENSURE(write(pair[1], &own, sizeof(own)) == sizeof(own));
	ENSURE(read(pair[1], &byte, 1) == 0);
	_exit(view_pattern(v, SIZE, 1) == 0 ? 0 : 1);
}

static int own_and_die(void *arg)
{
	struct shmstore *s = open_store(0);
	struct shmstore_view *v;

	(void)arg;
	ENSURE(put_pattern(s, "old", SIZE, 1, 0) == 0);
	v = get_view(s, "old", 0);
	if (fork() == 0)
		stay(v);
	kill(getpid(), SIGKILL);
	return 0;
}

static void leave_a_child(void)
{
	pid_t pid;

	scratch_partition_path(); /* made here, and not in a child */
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	cr_assert_eq(in_child(own_and_die, NULL), 1000 + SIGKILL);
	cr_assert_eq(read(pair[0], &pid, sizeof(pid)), (ssize_t)sizeof(pid));
	child = (int)syscall(SYS_pidfd_open, pid, 0);
	cr_assert_geq(child, 0);
}

static void end_the_child(void)
{
	struct pollfd ended = {.fd = child, .events = POLLIN};

	close(pair[1]);
	close(pair[0]);
	cr_assert_eq(poll(&ended, 1, -1), 1);
	close(child);
}

static int count_one(const struct shmstore_object_info *info, void *arg)
{
	(void)info;
	++*(unsigned *)arg;
	return 0;
}

static int look_at_books(const struct shmstore_store_books *b, void *arg)
{
	cr_expect_eq(b->n_objects, *(const unsigned *)arg, "a walk counts %lu objects",
		     (unsigned long)b->n_objects);
	cr_expect_eq(b->store->counters.linked_n, b->n_objects);
	cr_expect_eq(b->store->counters.linked_bytes, b->linked);
	return 0;
}

/* The store's owner, who looks at it without a place, and the books agree: it has so many
 * objects. */
static void expect_objects(struct shmstore *s, unsigned n)
{
	struct shmstore *look = open_store(SHMSTORE_OPEN_READONLY);
	unsigned n_own = 0, n_seen = 0;

	cr_assert_eq(shmstore_foreach(s, count_one, &n_own), 0);
	cr_assert_eq(shmstore_foreach(look, count_one, &n_seen), 0);
	cr_expect_eq(n_own, n);
	cr_expect_eq(n_seen, n, "%u objects are listed", n_seen);
	cr_expect_eq(shmstore_contains(look, KEY("old")), 0);
	cr_assert_eq(shmstore_partition_books(scratch_partition(), look_at_books, &n, NULL), 0);
	shmstore_close(look);
}

Test(packed_heir, new_owner_has_none_of_the_old_ones_objects)
{
	struct shmstore *s;

	leave_a_child();
	s = open_store(0);
	expect_objects(s, 0);
	cr_assert_eq(put_pattern(s, "new", SIZE, 2, 0), 0);
	expect_objects(s, 1);
	end_the_child();
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, NULL), 0);
	expect_objects(s, 1);
	cr_assert_eq(get_pattern(s, "new", SIZE, 2), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_expect_eq(count_in_store("heir", "segments"), -ENOENT);
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, NULL), 0);
}

/* A store that gc began to take apart is taken over as far as it is there still. */
Test(packed_heir, after_gc_there_is_nothing_to_take_over)
{
	struct shmstore *s;

	leave_a_child();
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, NULL), 0);
	s = open_store(SHMSTORE_OPEN_ADOPT);
	expect_objects(s, 0);
	end_the_child();
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, NULL), 0);
	expect_objects(s, 0);
	cr_assert_eq(shmstore_close(s), 0);
}
