/* SPDX-License-Identifier: Apache-2.0 */
/* A call's way to the daemon and back: the system calls that it costs, and
 * what may come in between. */
#include <criterion/criterion.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arbcase.h"
#include "interpose.h"
#include "scratch.h"

#define PART SHMSTORE_ARB_PARTITION

static _Thread_local unsigned n_calls; /* of the kernel, about sockets, by this thread */

ssize_t send(int fd, const void *bytes, size_t n, int flags)
{
	typedef ssize_t send_fn(int fd, const void *bytes, size_t n, int flags);

	n_calls++;
	return NEXT(send_fn *, "send")(fd, bytes, n, flags);
}

ssize_t recv(int fd, void *bytes, size_t n, int flags)
{
	typedef ssize_t recv_fn(int fd, void *bytes, size_t n, int flags);

	n_calls++;
	return NEXT(recv_fn *, "recv")(fd, bytes, n, flags);
}

int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	typedef int ppoll_fn(struct pollfd * fds, nfds_t n, const struct timespec *timeout,
			     const sigset_t *mask);

	n_calls++;
	return NEXT(ppoll_fn *, "ppoll")(fds, n, timeout, mask);
}

Test(arb_trip, costs_a_send_and_a_recv)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, 0);
	struct shmstore_arb_reservation r;
	unsigned before, least = UINT_MAX;

	/* Once at least: a machine that is busy may let a reply wait for half a second. */
	for (int i = 0; i < 5; i++) {
		before = n_calls;
		cr_assert_eq(shmstore_arb_reserve(c.s, PART, 1000, NULL, &r), 0);
		least = n_calls - before < least ? n_calls - before : least;
		cr_assert_eq(shmstore_arb_release(c.s, &r), 0);
	}
	cr_assert_eq(least, 2);
	arbcase_end(&c);
}

Test(arb_trip, late_answer_is_waited_for)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, 0);
	struct shmstore_arb_reservation r, more;
	/* More than a recv() waits for. */
	struct shmstore_arb_how how = {.timeout_ms = 700};
	struct shmstore_arb_context *runs; /* where all wait, somebody would be rolled back */

	cr_assert_eq(shmstore_arb_context_new(c.s, &runs), 0);
	cr_assert_eq(shmstore_arb_bind(c.s, runs, arbcase_task(c.s, 1)), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, ARB_MIB, NULL, &r), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, 1000, &how, &more), SHMSTORE_ARB_TIMEDOUT);
	cr_assert_eq(shmstore_arb_release(c.s, &r), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, 1000, &how, &more), 0);
	cr_assert_eq(shmstore_arb_release(c.s, &more), 0);
	arbcase_end(&c);
}

static _Atomic unsigned n_signals;

static void count_signal(int sig)
{
	(void)sig;
	atomic_fetch_add(&n_signals, 1);
}

static bool was_signaled(void *arg)
{
	return atomic_load(&n_signals) > *(unsigned *)arg;
}

Test(arb_trip, signals_and_forks_do_not_end_a_wait)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, 0);
	struct sigaction act = {.sa_handler = count_signal}, old;
	struct shmstore_arb_reservation r;
	struct arbwaiter w;
	pid_t child;
	int status;

	cr_assert_eq(sigaction(SIGUSR1, &act, &old), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, PART, ARB_MIB, NULL, &r), 0);
	arbwaiter_start(&w, c.s, arbcase_task(c.s, 5), 1000, 0);
	cr_assert(fakearb_waits(c.a, 1));
	for (unsigned i = 0; i < 5; i++) {
		cr_assert_eq(pthread_kill(w.thread, SIGUSR1), 0);
		cr_assert(wait_until(was_signaled, &i, 10000));
	}
	/* The child closes what it has of the connection. */
	child = fork();
	if (child == 0)
		_exit(0);
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert_eq(status, 0);
	cr_assert_eq(fakearb_parked(c.a), 1);
	cr_assert_eq(shmstore_arb_release(c.s, &r), 0);
	cr_assert_eq(arbwaiter_end(&w, true), 0);
	cr_assert_eq(sigaction(SIGUSR1, &old, NULL), 0);
	arbcase_end(&c);
}
