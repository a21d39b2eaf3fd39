/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A put into a recycled file left the former object's bytes in the header's unused room;
 * a handoff to another user opened the whole file to it.
 * tests/integration/test_attacks.py reads as that user.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "cleanup.h"
#include "filemode.h"
#include "handle.h"
#include "recycle.h"

#define SECRET 0xA5
#define ROOM   168 /* where the header of such an object has ended */

static unsigned char secret[1 << 20], file[(1 << 20) + 8192];

static void put_secret(struct shmstore *s, const char *key, size_t size, unsigned char byte)
{
	struct iovec iov = {secret, size};

	memset(secret, byte, sizeof(secret));
	cr_assert_eq(shmstore_put(s, KEY(key), "h", 1, &iov, 1, 0), 0);
}

/* Bytes of the secret in the file, and in what lies behind its end in the last page. */
static size_t secrets_in(const char *path, size_t from, size_t to)
{
	size_t n_secret = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	cr_assert_geq(fd, 0);
	ssize_t n = read(fd, file, sizeof(file));
	cr_assert_gt(n, 0);
	close(fd);
	for (size_t i = from; i < to && i < (size_t)n; i++)
		n_secret += file[i] == SECRET;
	return n_secret;
}

static bool recycled(struct shmstore *s, size_t first, size_t second)
{
	uint64_t inode;

	put_secret(s, "secret", first, SECRET);
	inode = inode_of("s", "secret");
	cr_assert_eq(shmstore_delete(s, KEY("secret")), 0);
	put_secret(s, "next", second, 1);
	return inode_of("s", "next") == inode;
}

Test(recycled_room, nothing_is_left_in_the_header_s_page)
{
	static const size_t sizes[][2] = {{3000, 2900},    {17000, 14000},   {9000, 8500},
					  {60000, 50000},  {70000, 70000},   {70000, 66000},
					  {100000, 90000}, {1000000, 800000}};
	struct shmstore *s = scratch_store("s");

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		cr_assert(recycled(s, sizes[i][0], sizes[i][1]), "%zu after %zu: a fresh file",
			  sizes[i][1], sizes[i][0]);
		cr_assert_eq(secrets_in(scratch_store_path("s", "objects/next"), ROOM, 4096), 0,
			     "%zu after %zu", sizes[i][1], sizes[i][0]);
		cr_assert_eq(shmstore_delete(s, KEY("next")), 0);
		cr_assert_eq(shmstore_close(s), 0);
		s = scratch_store("s");
	}
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

static void hand_over(struct shmstore *s, const char *key, struct shmstore_ticket *t)
{
	int fd = -1;

	cr_assert_eq(shmstore_handoff(s, KEY(key), 10000, t), 0);
	cr_assert_eq(shms_scrub(s, s->dir_fd, strstr(t->path, SHMS_DIR_HANDOFF "/"), &fd), 0);
	shms_close_fd(fd);
}

Test(recycled_room, before_it_goes_to_another_user_nothing_is_left_at_all)
{
	struct shmstore *s = scratch_store("s");
	struct shmstore_ticket t;
	struct stat st;

	cr_assert(recycled(s, 1000000, 800000));
	cr_assert_gt(secrets_in(scratch_store_path("s", "objects/next"), ROOM, SIZE_MAX), 100000,
		     "or there is nothing to clear");
	hand_over(s, "next", &t);
	cr_assert_eq(secrets_in(t.path, ROOM, SIZE_MAX), 0);
	cr_assert(stat(t.path, &st) == 0 && (st.st_mode & 07777) == 0400);
	struct shmstore_view *v = get_view(s, "next", 0);
	cr_assert_eq(shmstore_view_unref(v), NULL);
	/* Once more: there is nothing to do, and nothing is done. */
	struct timespec before = st.st_mtim;
	hand_over(s, "next", &t);
	cr_assert(stat(t.path, &st) == 0 && st.st_mtim.tv_sec == before.tv_sec &&
		  st.st_mtim.tv_nsec == before.tv_nsec);
	cr_assert_eq(shmstore_close(s), 0);
}

/* Its slot goes to others, and the slack becomes a hole but for what is no whole page:
 * that too is read by nobody. */
Test(recycled_room, without_a_slot)
{
	struct shmstore *s = scratch_store("s");
	struct shmstore_ticket t;
	char key[16];

	cr_assert(recycled(s, 1000000, 800000));
	for (int i = 0; i < 2 * SHMS_RECYCLE_SLOTS; i++) {
		snprintf(key, sizeof(key), "o%d", i);
		put_secret(s, key, 5000, 1);
	}
	hand_over(s, "next", &t);
	cr_assert_eq(secrets_in(t.path, ROOM, SIZE_MAX), 0);
	cr_assert_eq(shmstore_close(s), 0);
}

/*
 * Another process of our user links the same file, and is just handing it to another
 * user: that one's right to read is in the file's mode, and was lost for good where we
 * set that meanwhile. Found by chaos.
 */
Test(recycled_room, nobody_touches_what_somebody_is_handing_over)
{
	struct shmstore *s = scratch_store("s");
	struct shmstore_ticket t;
	struct stat before, after;
	int other, fd = -1;

	cr_assert(recycled(s, 1000000, 800000));
	cr_assert_eq(shmstore_handoff(s, KEY("next"), 10000, &t), 0);
	other = open(t.path, O_RDONLY | O_CLOEXEC);
	cr_assert_eq(flock(other, LOCK_EX), 0);
	cr_assert_eq(fstat(other, &before), 0);
	cr_assert_eq(shms_scrub(s, s->dir_fd, strstr(t.path, SHMS_DIR_HANDOFF "/"), &fd),
		     -ETIMEDOUT);
	cr_assert_eq(fstat(other, &after), 0);
	cr_assert(before.st_ctim.tv_sec == after.st_ctim.tv_sec &&
		  before.st_ctim.tv_nsec == after.st_ctim.tv_nsec);
	/* It is done: others may read it now. There is nothing left to do, and no lock that
	 * they could hold against us. */
	cr_assert_eq(fchmod(other, 0440), 0);
	cr_assert_eq(shms_scrub(s, s->dir_fd, strstr(t.path, SHMS_DIR_HANDOFF "/"), &fd), 0);
	cr_assert(fstat(other, &after) == 0 && (after.st_mode & 07777) == 0440);
	shms_close_fd(fd);
	close(other);
	cr_assert_eq(shmstore_close(s), 0);
}

/* Killed while the mode was another one. */
Test(recycled_room, the_next_call_sets_the_mode_right)
{
	struct shmstore *s = scratch_store("s");
	struct shmstore_ticket t;
	struct stat st;

	put_secret(s, "k", 5000, 1);
	cr_assert_eq(chmod(scratch_store_path("s", "objects/k"), 0600), 0);
	hand_over(s, "k", &t);
	cr_assert(stat(t.path, &st) == 0 && (st.st_mode & 07777) == 0400);
	cr_assert_eq(shmstore_close(s), 0);
}

/*
 * A deleted object's file that another store of our user links still, and hands to another user:
 * its mode, with that one's right to read in it, is not touched by who wants to write to it again.
 * Found by chaos: the receiver's adopt and get gave -EPERM.
 */
Test(recycled_room, a_pooled_file_that_another_store_hands_over_keeps_its_mode)
{
	struct shmstore *s = scratch_store("s"), *other = scratch_store("other");
	struct shmstore_ticket t;
	struct stat st;

	/* Without a descriptor of its own in the pool: cold. */
	put_secret(s, "k", 100000, 1);
	cr_assert_eq(shmstore_handoff(s, KEY("k"), 10000, &t), 0);
	cr_assert_eq(shmstore_adopt(other, KEY("k"), &t, 0), 0);
	for (int handing = 0; handing < 2; handing++) {
		int fd = open(scratch_store_path("other", "objects/k"), O_RDONLY | O_CLOEXEC);

		cr_assert_geq(fd, 0);
		if (handing)
			cr_assert(fchmod(fd, 0400) == 0 && flock(fd, LOCK_EX) == 0);
		else
			cr_assert_eq(fchmod(fd, 0440), 0);
		cr_assert_eq(shms_slot_open(s, s->objects_fd, "k"), handing ? -ETIMEDOUT : -EPERM);
		cr_assert(fstat(fd, &st) == 0 && (st.st_mode & 07777) == (handing ? 0400 : 0440));
		close(fd);
	}
	cr_assert_eq(shmstore_close(other), 0);
	cr_assert_eq(shmstore_close(s), 0);
}

/* Nor by who pins it. */
Test(recycled_room, a_pin_waits_for_who_hands_it_over)
{
	struct shmstore *s = scratch_store("s");
	struct stat st;
	int fd;

	put_secret(s, "k", 5000, 1);
	fd = open(scratch_store_path("s", "objects/k"), O_RDONLY | O_CLOEXEC);
	cr_assert_eq(flock(fd, LOCK_EX), 0);
	cr_assert_eq(shmstore_pin(s, KEY("k"), true), -ETIMEDOUT);
	cr_assert_eq(fchmod(fd, 0440), 0);
	cr_assert_eq(shmstore_pin(s, KEY("k"), true), 0);
	cr_assert(fstat(fd, &st) == 0 && (st.st_mode & 07777) == (0440 | S_ISVTX));
	close(fd);
	cr_assert_eq(shmstore_close(s), 0);
}
