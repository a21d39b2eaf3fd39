/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store's owner was killed and waited for, and gc left the store, as one whose owner lives: the
 * lock of its page goes with the owner's memory, which whoever reads it by /proc keeps meanwhile.
 * Here a reader is stopped amid that: userfaultfd holds it where it writes what it read.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api.h"
#include "stalled.h"

#define ROUNDS 10 /* one in which the reader goes on while gc waits is enough */

/* A reader of a byte of the process pid, to a page that is stalled. */
struct reader {
	struct stalled to;
	pid_t pid;
	void *from;
	pthread_t thread;
};

static void *read_it(void *arg)
{
	struct reader *r = arg;
	struct iovec to = {r->to.page, 1}, from = {r->from, 1};

	return process_vm_readv(r->pid, &to, 1, &from, 1, 0) == 1 ? r : NULL;
}

/* Returns when the reader is where it waits. */
static void start(struct reader *r, pid_t pid, void *from)
{
	*r = (struct reader){.pid = pid, .from = from};
	if (!stalled_init(&r->to))
		cr_skip_test("userfaultfd is not allowed");
	cr_assert_eq(pthread_create(&r->thread, NULL, read_it, r), 0);
	stalled_await(&r->to);
}

static void *let_go_soon(void *arg)
{
	const struct reader *r = arg;

	nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	stalled_let_go(&r->to);
	return NULL;
}

static void end(struct reader *r)
{
	void *done;

	pthread_join(r->thread, &done);
	cr_assert_not_null(done);
	stalled_deinit(&r->to);
}

/* Killed and waited for, and the reader has its memory. */
static void die_amid_a_read(struct reader *r)
{
	static char byte = 1;
	struct other o = other_start("dead");

	cr_assert_eq(other_put(&o, "k", 100000, 1), 0);
	start(r, o.pid, &byte);
	kill(o.pid, SIGKILL);
	waitpid(o.pid, NULL, 0);
	close(o.to);
	close(o.from);
	cr_assert(lock_held("dead"));
}

static bool store_there(void)
{
	return access(scratch_store_path("dead", ""), F_OK) == 0;
}

Test(gc_maps_read, waits_for_the_reader_and_removes_the_store, .timeout = 60)
{
	struct shmstore_partition *p = scratch_partition();
	bool gone = false;

	for (int i = 0; i < ROUNDS && !gone; i++) {
		pthread_t thread;
		struct reader r;

		die_amid_a_read(&r);
		cr_assert_eq(pthread_create(&thread, NULL, let_go_soon, &r), 0);
		cr_assert_eq(shmstore_partition_gc(p, 0, NULL), 0);
		gone = !store_there();
		pthread_join(thread, NULL);
		end(&r);
		await_dead("dead");
		cr_assert_eq(shmstore_partition_gc(p, 0, NULL), 0);
		cr_assert_not(store_there());
	}
	cr_assert(gone);
	shmstore_partition_unref(p);
	ensure_nothing_left();
}

Test(gc_maps_read, does_not_wait_for_ever, .timeout = 60)
{
	struct shmstore_partition *p = scratch_partition();
	struct reader r;

	die_amid_a_read(&r);
	cr_assert_eq(shmstore_partition_gc(p, 0, NULL), 0);
	cr_assert(store_there());
	stalled_let_go(&r.to);
	end(&r);
	await_dead("dead");
	cr_assert_eq(shmstore_partition_gc(p, 0, NULL), 0);
	cr_assert_not(store_there());
	shmstore_partition_unref(p);
	ensure_nothing_left();
}
