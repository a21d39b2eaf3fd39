/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that was cancelled inside a call ended at the next call of the kernel that is a point
 * for it, with store.names locked: every other thread waited for ever. Cancelled at each such
 * point, a call now comes to its end first.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "api.h"
#include "interpose.h"

static struct shmstore *s;
static struct shmstore_ticket ticket;
static _Thread_local bool victim;
static atomic_bool over;

static void point(void)
{
	if (victim && interpose_now())
		pthread_cancel(pthread_self());
}

int openat(int dir_fd, const char *path, int flags, ...)
{
	typedef int fn(int, const char *, int, ...);
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, mode_t) : 0;
	va_end(args);
	point();
	return NEXT(fn *, "openat")(dir_fd, path, flags, mode);
}

ssize_t pwritev(int fd, const struct iovec *iov, int n, off_t offset)
{
	typedef ssize_t fn(int, const struct iovec *, int, off_t);

	point();
	return NEXT(fn *, "pwritev")(fd, iov, n, offset);
}

ssize_t pread(int fd, void *buf, size_t size, off_t offset)
{
	typedef ssize_t fn(int, void *, size_t, off_t);

	point();
	return NEXT(fn *, "pread")(fd, buf, size, offset);
}

int close(int fd)
{
	typedef int fn(int);

	point();
	return NEXT(fn *, "close")(fd);
}

int fcntl(int fd, int command, ...)
{
	typedef int fn(int, int, ...);
	va_list args;
	long arg;

	va_start(args, command);
	arg = va_arg(args, long);
	va_end(args);
	point();
	return NEXT(fn *, "fcntl")(fd, command, arg);
}

static void put(void)
{
	ENSURE(put_pattern(s, "new", 100000, 2, SHMSTORE_REPLACE) == 0);
}

static void put_long(void)
{
	char key[1000];

	memset(key, 'x', sizeof(key));
	ENSURE(shmstore_put(s, key, sizeof(key), "h", 1, NULL, 0, SHMSTORE_REPLACE) == 0);
}

static void get(void)
{
	ENSURE(get_pattern(s, "k", 100000, 1) == 0);
}

static void handoff(void)
{
	ENSURE(shmstore_handoff(s, KEY("k"), 60000, &ticket) == 0);
}

static void adopt(void)
{
	ENSURE(shmstore_adopt(s, KEY("adopted"), &ticket, SHMSTORE_REPLACE | SHMSTORE_VERIFY) == 0);
}

static void make(void)
{
	ENSURE(seal_pattern(s, "made", 100000, 3, SHMSTORE_REPLACE) == 0);
}

static void delete (void)
{
	ENSURE(shmstore_delete(s, KEY("new")) == 0);
}

static void *run(void *arg)
{
	void (*call)(void);

	memcpy((void *)&call, &arg, sizeof(call));
	victim = true;
	call();
	over = true;
	victim = false;
	pthread_testcancel();
	return NULL;
}

/* Cancelled at the n-th point of the call. False: it has fewer. */
static bool cancelled_at(void (*call)(void), int n)
{
	pthread_t thread;
	void *arg, *result;

	memcpy(&arg, (void *)&call, sizeof(arg));
	over = false;
	interpose_countdown = n;
	cr_assert_eq(pthread_create(&thread, NULL, run, arg), 0);
	cr_assert_eq(pthread_join(thread, &result), 0);
	bool reached = interpose_countdown == 0;
	interpose_countdown = 0;
	cr_assert(over, "the call was cut short at point %d", n);
	cr_assert_eq(result == PTHREAD_CANCELED, reached);
	return reached;
}

Test(cancelled, at_every_point, .timeout = 60)
{
	static void (*const calls[])(void) = {put, put_long, get, handoff, adopt, make, delete};
	static const int least[] = {2, 2, 2, 0, 1, 1, 0};

	s = scratch_store("s");
	cr_assert_eq(put_pattern(s, "k", 100000, 1, SHMSTORE_CHECKSUM), 0);
	put();
	handoff();
	int n_before = count_dir("/proc/self/fd");
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		int n = 1;

		while (cancelled_at(calls[i], n)) {
			n++;
			put();
			get();
			handoff();
		}
		cr_assert_gt(n, least[i], "call %zu has points", i);
	}
	/* The pool's descriptors are bounded; one per cancelled call would not be. */
	cr_assert_leq(count_dir("/proc/self/fd"), n_before + 2 * 16);
	cr_assert_eq(shmstore_close(s), 0);
}
