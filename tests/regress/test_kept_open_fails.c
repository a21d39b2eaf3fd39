/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An open that took over a kept store without asking to keep it wrote so into the page before it
 * had succeeded. Where it failed then (no daemon, no descriptor, no memory), or was killed, the
 * next open of any store swept the objects.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "interpose.h"

enum {
	FAILED = 1,
	OPENED, /* an open can do without the call that failed */
	DONE    /* it makes fewer calls */
};

static bool kill_at_once; /* the armed call kills, rather than fails */

static bool fails_now(int error)
{
	if (!interpose_now())
		return false;
	if (kill_at_once)
		kill(getpid(), SIGKILL);
	errno = error;
	return true;
}

void *mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset)
{
	typedef void *fn(void *, size_t, int, int, int, off_t);

	if (fd >= 0 && fails_now(ENOMEM))
		return MAP_FAILED;
	return NEXT(fn *, "mmap")(at, size, prot, flags, fd, offset);
}

int madvise(void *at, size_t size, int advice)
{
	typedef int fn(void *, size_t, int);

	if (fails_now(ENOMEM))
		return -1;
	return NEXT(fn *, "madvise")(at, size, advice);
}

int mkdirat(int dir_fd, const char *path, mode_t mode)
{
	typedef int fn(int, const char *, mode_t);

	if (fails_now(ENOSPC))
		return -1;
	return NEXT(fn *, "mkdirat")(dir_fd, path, mode);
}

int openat(int dir_fd, const char *path, int flags, ...)
{
	typedef int fn(int, const char *, int, ...);
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, mode_t) : 0;
	va_end(args);
	if (fails_now(EMFILE))
		return -1;
	return NEXT(fn *, "openat")(dir_fd, path, flags, mode);
}

static int leave(void *arg)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s;

	o.keep = true;
	ENSURE(shmstore_open(p, "kept", &o, &s) == 0);
	if (arg)
		ENSURE(put_pattern(s, "a", 5000, 1, SHMSTORE_REPLACE) == 0);
	_exit(0);
}

/* As any open of any store: what is dead and not kept goes. */
static void sweep(struct shmstore_partition *p)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s;

	cr_assert_eq(shmstore_open(p, "another", &o, &s), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(shmstore_partition_gc(p, 0, NULL), 0);
}

static void ensure_kept(struct shmstore_partition *p)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s;

	sweep(p);
	o.keep = true;
	cr_assert_eq(shmstore_open(p, "kept", &o, &s), 0);
	cr_assert_eq(get_pattern(s, "a", 5000, 1), 0, "the failed open cost the objects");
	cr_assert_eq(shmstore_close(s), 0);
}

Test(kept_open_fails, daemon_required_and_absent)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s;

	cr_assert_eq(in_child(leave, p), 0);
	o.daemon = SHMSTORE_DAEMON_REQUIRED;
	cr_assert_eq(shmstore_open(p, "kept", &o, &s), -ETIMEDOUT);
	ensure_kept(p);
	shmstore_partition_unref(p);
}

/* A kept store without objects is kept too: its name, its leases. */
Test(kept_open_fails, an_empty_one_stays)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s;

	cr_assert_eq(in_child(leave, NULL), 0);
	o.daemon = SHMSTORE_DAEMON_REQUIRED;
	cr_assert_eq(shmstore_open(p, "kept", &o, &s), -ETIMEDOUT);
	sweep(p);
	cr_assert_eq(access(scratch_store_path("kept", "objects"), F_OK), 0);
	shmstore_partition_unref(p);
}

static int open_armed(void *arg)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s = NULL;
	int r;

	interpose_countdown = *(int *)arg;
	r = shmstore_open(p, "kept", &o, &s);
	if (interpose_countdown)
		_exit(DONE);
	_exit(r < 0 ? FAILED : OPENED);
}

static void each_call(struct shmstore_partition *p, int *ret_failed, int *ret_killed)
{
	int r = FAILED;

	for (int n = 1; r != DONE; n++) {
		cr_assert_eq(in_child(leave, p), 0);
		r = in_child(open_armed, &n);
		cr_assert(r == DONE || r == FAILED || r == OPENED || r == 1000 + SIGKILL,
			  "call %d: %d", n, r);
		*ret_failed += r == FAILED;
		*ret_killed += r == 1000 + SIGKILL;
		if (r != DONE && r != OPENED)
			ensure_kept(p);
	}
}

Test(kept_open_fails, any_call_of_it)
{
	struct shmstore_partition *p = scratch_partition();
	int n_failed = 0, n_killed = 0;

	cr_assert_eq(in_child(leave, p), 0);
	each_call(p, &n_failed, &n_killed);
	cr_assert_gt(n_failed, 5);
	cr_assert_eq(n_killed, 0);
	shmstore_partition_unref(p);
}

Test(kept_open_fails, killed_at_any_call_of_it)
{
	struct shmstore_partition *p = scratch_partition();
	int n_failed = 0, n_killed = 0;

	cr_assert_eq(in_child(leave, p), 0);
	kill_at_once = true;
	each_call(p, &n_failed, &n_killed);
	cr_assert_gt(n_killed, 5);
	cr_assert_eq(n_failed, 0);
	shmstore_partition_unref(p);
}
