/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gc that was stopped while it gave memory of a kept store's segments back held the store's lock,
 * and the owner's byte of the segment: the store could not be opened until somebody let it go on,
 * or killed it. A gc that goes on must harm nothing that was put meanwhile.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <shmstore/inspect.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "handle.h"
#include "interpose.h"
#include "shut.h"

#define N    600u
#define SIZE 3000u

static bool stops;

/* gc's punching: it is stopped before it. */
int fallocate(int fd, int mode, off_t offset, off_t length)
{
	typedef int fn(int, int, off_t, off_t);

	if (stops && (mode & FALLOC_FL_PUNCH_HOLE)) {
		stops = false;
		raise(SIGSTOP);
	}
	return NEXT(fn *, "fallocate")(fd, mode, offset, length);
}

static const char *key_of(unsigned i)
{
	static char text[16];

	snprintf(text, sizeof(text), "k%u", i);
	return text;
}

static void put(struct shmstore *s, unsigned i)
{
	cr_assert_eq(put_pattern(s, key_of(i), SIZE, i, 0), 0, "%u: %s", i,
		     shmstore_error_detail());
}

static void ensure(struct shmstore *s, unsigned from, unsigned to, unsigned step)
{
	for (unsigned i = from; i < to; i += step)
		cr_assert_eq(get_pattern(s, key_of(i), SIZE, i), 0, "%u", i);
}

static pid_t gc_that_stops(void)
{
	int status;
	pid_t pid = fork_bound(60);

	if (pid == 0) {
		stops = true;
		_exit(shmstore_partition_gc(scratch_partition(), 0, NULL) != 0 || stops);
	}
	cr_assert_eq(waitpid(pid, &status, WUNTRACED), pid);
	cr_assert(WIFSTOPPED(status), "it punched nothing: 0x%x", status);
	return pid;
}

Test(gc_stopped_amid_trim, kept_store_opens_and_stays_right, .timeout = 120)
{
	struct shmstore *s;
	int status;
	pid_t pid;

	scratch_dir("size=256m");
	s = packing_store("s", 65536, true);
	for (unsigned i = 0; i < N; i++)
		put(s, i);
	for (unsigned i = 0; i < N; i += 2)
		cr_assert_eq(shmstore_delete(s, key_of(i), strlen(key_of(i))), 0);
	cr_assert_eq(shmstore_close(s), 0);
	pid = gc_that_stops();
	s = packing_store("s", 65536, true);
	cr_assert_eq(n_shut(s), 1, "nothing was being punched");
	ensure(s, 1, N, 2);
	/* These have no place among what is free; nor have those whose place goes. */
	for (unsigned i = N; i < 2 * N; i++)
		put(s, i);
	for (unsigned i = 1; i < N; i += 4)
		cr_assert_eq(shmstore_delete(s, key_of(i), strlen(key_of(i))), 0);
	for (unsigned i = 2 * N; i < 3 * N; i++)
		put(s, i);
	cr_assert_eq(kill(pid, SIGCONT), 0);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0);
	ensure(s, 3, N, 4);
	ensure(s, N, 3 * N, 1);
	/* From now on it is used as any other. */
	for (unsigned i = 3 * N; i < 6 * N; i++)
		put(s, i);
	cr_assert_eq(n_shut(s), 0);
	ensure(s, 3, N, 4);
	ensure(s, N, 6 * N, 1);
	cr_assert_eq(shmstore_close(s), 0);
	s = packing_store("s", 65536, false);
	ensure(s, 3, N, 4);
	ensure(s, N, 6 * N, 1);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
