/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client is killed before and after each system call by which it changes what others see:
 * messages, and what names and bytes the partition has. Its reservations, leases and waiting
 * requests go with it, and no more is called an object than there is. The next one of its name
 * begins as if nothing had been.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "arbcase.h"
#include "interpose.h"

#define PART SHMSTORE_ARB_PARTITION

enum {
	SIZE = 100000,
	BLOCKS = 106496, /* with header, in pages */
	STEPS_MAX = 400
};

static bool armed; /* in the victim */
static int n_steps, kill_at;

static void step(void)
{
	if (armed && ++n_steps == kill_at)
		kill(getpid(), SIGKILL);
}

#define STEPPED(call)                         \
	__extension__({                       \
		step();                       \
		__typeof__(call) r_ = (call); \
		step();                       \
		r_;                           \
	})

ssize_t send(int fd, const void *bytes, size_t n, int flags)
{
	typedef ssize_t send_fn(int fd, const void *bytes, size_t n, int flags);

	return STEPPED(NEXT(send_fn *, "send")(fd, bytes, n, flags));
}

ssize_t recv(int fd, void *bytes, size_t n, int flags)
{
	typedef ssize_t recv_fn(int fd, void *bytes, size_t n, int flags);

	return STEPPED(NEXT(recv_fn *, "recv")(fd, bytes, n, flags));
}

ssize_t pwritev(int fd, const struct iovec *iov, int n, off_t at)
{
	typedef ssize_t pwritev_fn(int fd, const struct iovec *iov, int n, off_t at);

	return STEPPED(NEXT(pwritev_fn *, "pwritev")(fd, iov, n, at));
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
	typedef int linkat_fn(int from_fd, const char *from, int to_fd, const char *to, int flags);

	return STEPPED(NEXT(linkat_fn *, "linkat")(from_fd, from, to_fd, to, flags));
}

int unlinkat(int fd, const char *name, int flags)
{
	typedef int unlinkat_fn(int fd, const char *name, int flags);

	return STEPPED(NEXT(unlinkat_fn *, "unlinkat")(fd, name, flags));
}

/* ---- what the victim does ---- */

static int do_put(struct shmstore *s)
{
	return put_pattern(s, "k", SIZE, 1, 0);
}

static int do_put_and_delete(struct shmstore *s)
{
	int r = put_pattern(s, "k", SIZE, 1, 0);

	return r != 0 ? r : shmstore_delete(s, KEY("k"));
}

static int do_seal_spent(struct shmstore *s)
{
	struct shmstore_arb_reservation r;

	ENSURE(shmstore_arb_reserve(s, PART, 3 * BLOCKS, NULL, &r) == 0);
	ENSURE(shmstore_arb_spend(s, &r) == 0);
	ENSURE(seal_pattern(s, "k", SIZE, 1, 0) == 0);
	ENSURE(shmstore_arb_spend(s, NULL) == 0);
	return shmstore_arb_resize(s, &r, 3 * BLOCKS, NULL);
}

static int attempt(void *ctx, void *item)
{
	struct shmstore_arb_reservation r[3];
	struct shmstore *s = ctx;
	int outcome = 0;

	(void)item;
	for (int i = 0; i < 3 && outcome == 0; i++)
		outcome = shmstore_arb_reserve(s, PART, i == 1 ? 500 * ARB_KIB : 4096, NULL, &r[i]);
	return outcome ? outcome : shmstore_arb_release(s, &r[1]);
}

static int do_attempts(struct shmstore *s)
{
	struct shmstore_arb_work w = {.size = sizeof(w), .attempt = attempt, .ctx = s};
	void *items[1] = {NULL};

	ENSURE(shmstore_arb_inject(s, NULL, SHMSTORE_ARB_INJECT_RETRY, 1, 1, 0) == 0);
	return shmstore_arb_with_retry(s, items, 1, &w);
}

static void live_and_die(int (*act)(struct shmstore *s))
{
	struct shmstore_partition *p;
	struct shmstore *s;

	ENSURE(shmstore_partition_open(scratch_partition_path(), 0, &p) == 0);
	s = arbcase_store(p, "victim", SHMSTORE_OPEN_ARBITRATE);
	ENSURE(shmstore_arb_bind(s, NULL, arbcase_task(s, 1)) == 0);
	armed = true;
	_exit(act(s) == 0 ? 0 : 1);
}

/* ---- what is left ---- */

static bool is_alone(void *arg)
{
	return atomic_load(&((struct fakearb *)arg)->f->n_connections) == 1;
}

/* True: it was killed; else it had come to its end. */
static bool one_life(struct arbcase *c, int (*act)(struct shmstore *s))
{
	uint64_t objects = fakearb_objects(c->a);
	pid_t pid = fork();
	int status;

	cr_assert_geq(pid, 0);
	if (pid == 0)
		live_and_die(act);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0,
		  "status %x", status);
	/* The messages that it sent are read by then. */
	cr_assert(wait_until(is_alone, c->a, 10000));
	cr_assert(fakearb_settled(c->a, false), "killed at %d", kill_at);
	cr_assert_eq(fakearb_parked(c->a), 0);
	/* It may have deleted what was one; the partition counts that, not we. */
	if (act != do_put_and_delete)
		cr_assert_leq(fakearb_objects(c->a) - objects,
			      (uint64_t)count_in_store("victim", "objects") * BLOCKS,
			      "killed at %d", kill_at);
	return WIFSIGNALED(status);
}

static void kill_everywhere(int (*act)(struct shmstore *s), uint64_t lease, int least)
{
	struct arbcase c = arbcase_begin(64 * ARB_MIB, lease, 0);

	for (kill_at = 1; one_life(&c, act); kill_at++)
		cr_assert_lt(kill_at, STEPS_MAX);
	cr_assert_geq(kill_at, least);
	arbcase_end(&c);
}

Test(arb_killed, in_a_put)
{
	kill_everywhere(do_put, 0, 10);
}

Test(arb_killed, in_a_put_out_of_a_lease)
{
	kill_everywhere(do_put, ARB_MIB, 8);
}

Test(arb_killed, in_a_delete)
{
	kill_everywhere(do_put_and_delete, ARB_MIB, 8);
}

Test(arb_killed, in_what_is_spent)
{
	kill_everywhere(do_seal_spent, 0, 10);
}

Test(arb_killed, in_attempts)
{
	kill_everywhere(do_attempts, 64 * ARB_KIB, 10);
}
