/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store that had adopted from another one kept its place in that one's segment, and its link,
 * when nothing of it was left there: after an adoption under another key, which copies, and after
 * the last object was deleted. So a dead donor's segment took memory as long as the receiver lived.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"

#define SIZE 5000

static struct shmstore_ticket *ticket; /* of the donor, a child */

static struct shmstore *open_store(const char *name)
{
	return packing_store(name, 64u << 10, false);
}

/* A receiver that has all memory of its own that it will need. */
static struct shmstore *open_receiver(void)
{
	struct shmstore *s;

	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own\n");
	ticket = mmap(NULL, sizeof(*ticket), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	cr_assert_neq(ticket, MAP_FAILED);
	s = open_store("receiver");
	cr_assert_eq(put_pattern(s, "other", SIZE, 2, 0), 0);
	cr_assert_eq(shmstore_delete(s, KEY("other")), 0);
	return s;
}

static uint64_t used(void)
{
	struct shmstore_usage u;

	cr_assert_eq(shmstore_partition_usage(scratch_partition(), SHMSTORE_USAGE_FULL, &u), 0);
	cr_assert_eq(u.residual, 0, "residual %lld of %llu", (long long)u.residual,
		     (unsigned long long)u.used);
	cr_assert_eq(u.foreign, 0);
	return u.used;
}

/* The bytes in use when all that the dead left is collected. */
static uint64_t used_after_gc(void)
{
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, NULL), 0);
	cr_assert_eq(count_dir(scratch_store_path("donor", "")), -ENOENT);
	return used();
}

static int donate_and_die(void *arg)
{
	struct shmstore *s = open_store("donor");

	(void)arg;
	ENSURE(put_pattern(s, "k", SIZE, 1, 0) == 0);
	ENSURE(shmstore_handoff(s, KEY("k"), 60000, ticket) == 0);
	kill(getpid(), SIGKILL);
	return 0;
}

static void adopt_and_delete(struct shmstore *s, const char *key)
{
	cr_assert_eq(shmstore_adopt(s, KEY(key), ticket, 0), 0);
	cr_assert_eq(get_pattern(s, key, SIZE, 1), 0);
	cr_assert_eq(shmstore_delete(s, KEY(key)), 0);
}

Test(packed_unjoin, adoption_under_another_key_keeps_no_place)
{
	struct shmstore *s = open_receiver();
	uint64_t before = used();

	cr_assert_eq(in_child(donate_and_die, NULL), 1000 + SIGKILL);
	adopt_and_delete(s, "other");
	cr_assert_eq(used_after_gc(), before);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(packed_unjoin, place_among_the_dead_goes_with_its_last_object)
{
	struct shmstore *s = open_receiver();
	struct shmstore_view *v;
	uint64_t before = used();

	cr_assert_eq(in_child(donate_and_die, NULL), 1000 + SIGKILL);
	adopt_and_delete(s, "k");
	cr_assert_eq(used_after_gc(), before);

	/* The last of it is a view. */
	cr_assert_eq(in_child(donate_and_die, NULL), 1000 + SIGKILL);
	cr_assert_eq(shmstore_adopt(s, KEY("k"), ticket, 0), 0);
	v = get_view(s, "k", 0);
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	cr_assert_gt(used_after_gc(), before);
	cr_assert_eq(view_pattern(v, SIZE, 1), 0);
	shmstore_view_unref(v);
	cr_assert_eq(used_after_gc(), before);

	/* Another object takes its key. */
	cr_assert_eq(in_child(donate_and_die, NULL), 1000 + SIGKILL);
	cr_assert_eq(shmstore_adopt(s, KEY("k"), ticket, 0), 0);
	cr_assert_eq(put_pattern(s, "k", SIZE, 3, SHMSTORE_REPLACE), 0);
	cr_assert_eq(used_after_gc(), before);
	cr_assert_eq(get_pattern(s, "k", SIZE, 3), 0);
	cr_assert_eq(shmstore_close(s), 0);
}

static int donate_and_wait(int go)
{
	struct shmstore *s = open_store("donor");
	char byte;

	ENSURE(put_pattern(s, "k", SIZE, 1, 0) == 0);
	ENSURE(shmstore_handoff(s, KEY("k"), 60000, ticket) == 0);
	ENSURE(write(go, "g", 1) == 1);
	ENSURE(read(go, &byte, 1) == 0);
	return 0;
}

/* The place is kept as long as the donor lives, who may send more. The next thing that the
 * receiver does gives it up. */
Test(packed_unjoin, donor_that_dies_later)
{
	struct shmstore *s = open_receiver();
	uint64_t before = used();
	int fds[2];
	char byte;
	pid_t donor;

	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	donor = fork_bound(60);
	if (donor == 0)
		_exit(donate_and_wait(fds[1]));
	cr_assert_eq(read(fds[0], &byte, 1), 1);
	adopt_and_delete(s, "k");
	cr_assert_eq(count_in_store("receiver", "segments"), 2);
	kill(donor, SIGKILL);
	cr_assert_eq(waitpid(donor, NULL, 0), donor);
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, NULL), 0);
	cr_assert_eq(put_pattern(s, "other", SIZE, 2, 0), 0);
	cr_assert_eq(shmstore_delete(s, KEY("other")), 0);
	cr_assert_eq(used_after_gc(), before);
	cr_assert_eq(shmstore_close(s), 0);
}
