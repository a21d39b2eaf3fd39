/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recycling set the signal of its lease on a file once, and the kernel takes it back with
 * the lease: from the second test of the same file on, who opened it during the test
 * killed the owner with SIGIO.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "api.h"
#include "interpose.h"

#define SIZE 200000u

static bool armed;
static unsigned n_openers;
static volatile sig_atomic_t n_urgent, n_deadly;

static void on_signal(int signal)
{
	if (signal == SIGURG)
		n_urgent++;
	else
		n_deadly++;
}

/* An open while the lease is held. It gets EWOULDBLOCK, and the kernel sends the lease's signal to
 * its holder, which is what it does for an opener of any process. */
static void open_leased(int fd)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	cr_assert_eq(open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), -1);
	cr_assert_eq(errno, EWOULDBLOCK);
	n_openers++;
}

int fcntl(int fd, int command, ...)
{
	typedef int fn(int, int, ...);
	va_list list;
	void *argument;
	int r;

	va_start(list, command);
	argument = va_arg(list, void *);
	va_end(list);
	r = NEXT(fn *, "fcntl")(fd, command, argument);
	if (r == 0 && armed && command == F_SETLEASE && (int)(intptr_t)argument == F_WRLCK)
		open_leased(fd);
	return r;
}

Test(lease_signal, opener_during_any_test_of_a_file_does_not_kill)
{
	struct shmstore *s = scratch_store("s");
	uint64_t inode;

	signal(SIGURG, on_signal);
	signal(SIGIO, on_signal);
	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	inode = inode_of("s", "k");
	for (unsigned i = 1; i <= 3; i++) {
		cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
		armed = true;
		cr_assert_eq(put_pattern(s, "k", SIZE, 1 + i, 0), 0);
		armed = false;
		cr_assert_eq(inode_of("s", "k"), inode, "the file was tested and taken");
		cr_assert_eq(n_openers, i);
		cr_assert_eq(n_deadly, 0, "SIGIO at test %u", i);
		cr_assert_eq(n_urgent, (sig_atomic_t)i);
		cr_assert_eq(get_pattern(s, "k", SIZE, 1 + i), 0);
	}
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
