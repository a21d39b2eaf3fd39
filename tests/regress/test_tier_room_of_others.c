/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts of other processes took the memory that a put of one process had evicted for itself, again
 * and again: with 64 threads it had its memory after a second. An eviction for a put says so now,
 * by a lock on a byte, and a put that was refused once waits for it before it takes anything.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "api.h"
#include "interpose.h"
#include "tiered.h"

#define MIB     (UINT64_C(1) << 20)
#define FOR_PUT 1 /* the byte */

static int lock_fd = -1;  /* of the lock's file, a description of the test's own */
static char filler[1024]; /* a file of nobody's; "": none */
static unsigned n_waits, n_marked, n_moved;

static short byte(int command, short type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = FOR_PUT, .l_len = 1};

	ENSURE(fcntl(lock_fd, command, &lock) == 0);
	return lock.l_type;
}

/* The other process's eviction has made room, and is over, once somebody waits for it. */
int nanosleep(const struct timespec *time, struct timespec *left)
{
	typedef int fn(const struct timespec *, struct timespec *);

	if (filler[0]) {
		n_waits++;
		ENSURE(unlink(filler) == 0);
		filler[0] = '\0';
		byte(F_OFD_SETLK, F_UNLCK);
	}
	return NEXT(fn *, "nanosleep")(time, left);
}

/* An object goes out. */
int renameat2(int dirfd, const char *name, int other_dirfd, const char *other_name, unsigned flags)
{
	typedef int fn(int, const char *, int, const char *, unsigned);

	if (lock_fd >= 0 && (flags & RENAME_EXCHANGE)) {
		n_moved++;
		n_marked += byte(F_OFD_GETLK, F_WRLCK) != F_UNLCK;
	}
	return NEXT(fn *, "renameat2")(dirfd, name, other_dirfd, other_name, flags);
}

static int evicted(const struct shmstore_store_info *info, void *arg)
{
	*(uint64_t *)arg = info->counters.evicted_n;
	return 0;
}

/* A store with six objects that may go, on a partition that is filled up by somebody else's
 * file. */
static struct shmstore *full_store(void)
{
	struct shmstore *s;
	char path[1024], key[16];
	int fd;

	scratch_dir("size=16m,huge=never");
	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own\n");
	TIERED_OR_SKIP();
	s = scratch_store("s");
	for (unsigned i = 0; i < 6; i++) {
		snprintf(key, sizeof(key), "%u", i);
		cr_assert_eq(put_pattern(s, key, MIB, i, 0), 0);
	}
	cr_assert_eq(shmstore_demote(s, KEY("5"), 0), 0);
	snprintf(filler, sizeof(filler), "%s/filler", scratch_partition_path());
	fd = open(filler, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	cr_assert_geq(fd, 0);
	while (write(fd, path, sizeof(path)) > 0)
		continue;
	close(fd);
	snprintf(path, sizeof(path), "%s/tier/%u/lock", scratch_partition_path(),
		 (unsigned)geteuid());
	lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	cr_assert_geq(lock_fd, 0);
	return s;
}

Test(tier_room_of_others, a_put_that_was_refused_waits_for_it)
{
	struct shmstore *s = full_store();
	struct shmstore_partition *p = scratch_partition();
	uint64_t n = 1;

	byte(F_OFD_SETLK, F_WRLCK);
	cr_assert_eq(put_pattern(s, "new", MIB, 9, 0), 0);
	cr_assert_eq(n_waits, 1);
	cr_assert_eq(shmstore_partition_stores(p, evicted, &n), 0);
	cr_assert_eq(n, 0);
	close(lock_fd);
	shmstore_partition_unref(p);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

Test(tier_room_of_others, an_eviction_for_a_put_says_so)
{
	struct shmstore *s = full_store();
	char path[1024];

	snprintf(path, sizeof(path), "%s", filler);
	filler[0] = '\0';
	cr_assert_eq(put_pattern(s, "new", MIB, 9, 0), 0);
	cr_assert_gt(n_moved, 0);
	cr_assert_eq(n_marked, n_moved);
	cr_assert_eq(byte(F_OFD_GETLK, F_WRLCK), F_UNLCK);
	/* A demotion that is asked for is for nobody's put. */
	n_marked = n_moved = 0;
	cr_assert_eq(shmstore_demote(s, KEY("new"), 0), 0);
	cr_assert_eq(n_moved, 1);
	cr_assert_eq(n_marked, 0);
	close(lock_fd);
	lock_fd = -1;
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}
