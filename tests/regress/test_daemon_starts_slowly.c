/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon that was killed and starts again holds the partition's lock before it serves its
 * socket, and looks at everything in between: seconds on a host with more to do than it can. A
 * store without credit waited for it for one second, and its puts failed: first where the killed
 * one's socket refused it, then still where the last one had ended in order, or had died only
 * after the put had begun to wait.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "api.h"
#include "fakedaemon.h"
#include "handle.h"

/* Leaves a socket, as a killed daemon does. */
static void stale_socket(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", scratch_dir(NULL));
	cr_assert(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	close(fd);
	setenv("SHMSTORE_SOCKET", address.sun_path, 1);
}

/* The starting daemon, which gives up in the end. */
static void *start_slowly(void *arg)
{
	int fd = *(int *)arg;

	nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
	close(fd);
	return NULL;
}

Test(daemon_starts_slowly, put_without_credit_waits)
{
	struct wire_credit *c;
	struct shmstore *s;
	char path[SCRATCH_PATH];
	pthread_t thread;
	int fd;

	stale_socket();
	s = scratch_store("a");
	c = &s->page->credit;
	atomic_store(&c->credit, 65536);
	atomic_store(&c->partition_hard, 1ull << 40);
	atomic_store(&c->epoch, 1);
	snprintf(path, sizeof(path), "%s/.shmstore", scratch_partition_path());
	fd = open(path, O_RDONLY | O_CLOEXEC);
	cr_assert(fd >= 0 && flock(fd, LOCK_EX) == 0);
	cr_assert_eq(pthread_create(&thread, NULL, start_slowly, &fd), 0);
	cr_assert_eq(put_pattern(s, "k", 100000, 1, 0), 0);
	pthread_join(thread, NULL);
	cr_assert_eq(get_pattern(s, "k", 100000, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

/* ---- what came before it --------------------------------------------------------------------- */

struct successor {
	struct fake *f; /* ends first; NULL: has ended */
	int lock_fd;
	_Atomic bool asked;
};

static int lock_marker(void)
{
	char path[SCRATCH_PATH];
	int fd;

	snprintf(path, sizeof(path), "%s/.shmstore", scratch_partition_path());
	fd = open(path, O_RDONLY | O_CLOEXEC);
	cr_assert(fd >= 0 && flock(fd, LOCK_EX) == 0);
	return fd;
}

static bool is_registered(void *arg)
{
	return shmstore_daemon_dispatch(arg) == 1;
}

static struct shmstore *registered_store(struct fake *f)
{
	struct shmstore *s;

	atomic_store(&f->room, 0);
	s = scratch_store("a");
	cr_assert(wait_until(is_registered, s, 20000));
	atomic_store(&fake_credit(f)->partition_hard, 1ull << 40);
	cr_assert_eq(atomic_load(&fake_credit(f)->granted), 0);
	return s;
}

/* It serves nobody, and gives up in the end. */
static void *succeed(void *arg)
{
	struct successor *n = arg;

	if (n->f) {
		while (!n->asked)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		/* After the request's second, while the store waits for the lock. */
		nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 500000000}, NULL);
		fake_stop(n->f);
	}
	nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
	close(n->lock_fd);
	return NULL;
}

static void put_waits_for(struct shmstore *s, struct successor *n)
{
	pthread_t thread;

	cr_assert_eq(pthread_create(&thread, NULL, succeed, n), 0);
	cr_assert_eq(put_pattern(s, "k", 100000, 1, 0), 0);
	pthread_join(thread, NULL);
	cr_assert_eq(get_pattern(s, "k", 100000, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(daemon_starts_slowly, after_one_that_ended_in_order, .timeout = 60)
{
	struct fake *f = fake_start(scratch_partition(), true, NULL, NULL);
	struct shmstore *s = registered_store(f);
	struct successor n = {0};

	fake_stop(f);
	n.lock_fd = lock_marker();
	put_waits_for(s, &n);
}

static bool no_grant(struct fake *f, int fd, const struct wire_header *h, const void *body,
		     const char *tail, void *arg)
{
	struct successor *n = arg;

	(void)f;
	(void)fd;
	(void)body;
	(void)tail;
	n->asked |= h->type == WIRE_GRANT;
	return h->type == WIRE_GRANT;
}

Test(daemon_starts_slowly, after_one_that_died_while_a_put_waited, .timeout = 60)
{
	struct successor n = {0};
	char path[SCRATCH_PATH];
	struct shmstore *s;

	n.f = fake_start(scratch_partition(), false, no_grant, &n);
	/* Its end finds no socket to take away, as a kill does not look for one. */
	snprintf(path, sizeof(path), "%s-killed", getenv("SHMSTORE_SOCKET"));
	cr_assert_eq(rename(getenv("SHMSTORE_SOCKET"), path), 0);
	setenv("SHMSTORE_SOCKET", path, 1);
	n.lock_fd = lock_marker();
	s = registered_store(n.f);
	put_waits_for(s, &n);
}
