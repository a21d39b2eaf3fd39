/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transient.c: which descriptors a forked child closes.
 *
 * The notes are an array by number: a store to mark, a store to clear, no lock. A thread that
 * opens or closes stands in one of a few counters meanwhile (of several, so that threads do not
 * meet on one); fork() shuts the gate and waits until all are at zero. An entrant that finds it
 * shut steps back and waits for the gate's lock, which the forking thread holds until the fork
 * is over. The gate is shut after the stores' own locks were taken (atfork.c): a thread in a
 * counter waits for none of them.
 *
 * In the child the descriptors of threads that are not there are closed. Those of the thread that
 * forked, out of a callback of ours, still have somebody who will close them when the callback
 * returns: their numbers get a descriptor that means nothing.
 *
 * Rejected: no fork while anything is open (a put of a GiB, or a callback that forks, would hold it
 * up for good); the flag O_CLOFORK, which Linux does not have; closing what /proc/self/fd shows of
 * the partition (a program's own files may be there).
 */
#include "transient.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "hugemap.h"
#include "lightlock.h"
#include "sys.h"

/* descriptors of higher numbers are not noted; the kernel's default limit is this one */
#define NUMBERS  (1u << 20)
#define COUNTERS 64u
#define NOBODYS  UINT16_MAX /* no thread is to close it */
#define SPINS    100

static _Atomic uint16_t owners[NUMBERS]; /* 0: not noted; which thread's */
static _Atomic int highest = -1;         /* number that was ever noted */
static struct {
	_Alignas(64) _Atomic uint32_t n;
} inside[COUNTERS];
static atomic_bool shut;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint32_t n_threads;

static _Thread_local struct me {
	uint16_t id;
	bool forking;
	bool alone;     /* the outermost of ours is not in the counter: there was no other thread */
	uint32_t depth; /* of ours */
} me;

static struct me *myself(void)
{
	struct me *m = &me;

	if (!m->id)
		m->id = (uint16_t)(1 +
				   atomic_fetch_add_explicit(&n_threads, 1, memory_order_relaxed) %
					   (NOBODYS - 1));
	return m;
}

/* Of ours in the counter. */
static uint32_t counted(const struct me *m)
{
	return m->depth - m->alone;
}

static void enter(struct me *m)
{
	if (SHMS_ONE_THREAD && !m->depth) {
		m->alone = true;
		m->depth = 1;
		return;
	}
	for (;;) {
		/* Both in one total order with the gate: of fork() and us one sees the other. */
		atomic_fetch_add_explicit(&inside[m->id % COUNTERS].n, 1, memory_order_seq_cst);
		if (!atomic_load_explicit(&shut, memory_order_seq_cst) || m->forking || m->depth)
			break;
		atomic_fetch_sub_explicit(&inside[m->id % COUNTERS].n, 1, memory_order_seq_cst);
		pthread_mutex_lock(&gate);
		pthread_mutex_unlock(&gate);
	}
	m->depth++;
}

static void leave(struct me *m)
{
	m->depth--;
	if (m->alone && !m->depth) {
		m->alone = false;
		return;
	}
	/* Release: fork() sees the notes. */
	atomic_fetch_sub_explicit(&inside[m->id % COUNTERS].n, 1, memory_order_release);
}

static void note(int fd, uint16_t owner)
{
	int most = atomic_load_explicit(&highest, memory_order_relaxed);

	if (fd < 0 || fd >= (int)NUMBERS)
		return;
	atomic_store_explicit(&owners[fd], owner, memory_order_relaxed);
	while (fd > most &&
	       !atomic_compare_exchange_weak_explicit(&highest, &most, fd, memory_order_relaxed,
						      memory_order_relaxed))
		;
}

int shms_openat(int dir_fd, const char *path, int flags, mode_t mode)
{
	struct me *m = myself();
	int fd;

	enter(m);
	fd = openat(dir_fd, path, flags, mode);
	note(fd, m->id);
	leave(m);
	return fd;
}

int shms_openat_beneath(int dir_fd, const char *path, int flags)
{
	struct me *m = myself();
	int fd;

	enter(m);
	fd = shms_open_beneath(dir_fd, path, flags);
	note(fd, m->id);
	leave(m);
	return fd;
}

void shms_transient_close(int fd)
{
	struct me *m;

	if (atomic_load_explicit(&shms_unnamed_n, memory_order_relaxed))
		shms_unnamed_closed(fd);
	if (fd >= (int)NUMBERS || !atomic_load_explicit(&owners[fd], memory_order_relaxed)) {
		close(fd);
		return;
	}
	m = myself();
	enter(m);
	atomic_store_explicit(&owners[fd], 0, memory_order_relaxed);
	close(fd);
	leave(m);
}

void shms_transient_hold(int fd)
{
	note(fd, NOBODYS);
}

void *shms_map_ours(size_t size, int flags, int fd)
{
	struct me *m = myself();
	void *map;
	int error;

	enter(m);
	map = shms_map_aligned(size, PROT_READ | PROT_WRITE, flags, fd, 0);
	if (map != MAP_FAILED && madvise(map, size, MADV_DONTFORK) < 0) {
		error = errno;
		munmap(map, size);
		errno = error;
		map = MAP_FAILED;
	}
	leave(m);
	return map;
}

/* ---- fork ------------------------------------------------------------------------------------ */

static void await(_Atomic uint32_t *n, uint32_t own)
{
	/* In one order with the gate, which was shut before; and acquires what a
	 * thread noted that leaves. */
	for (unsigned i = 0; atomic_load_explicit(n, memory_order_seq_cst) > own; i++) {
		if (i < SPINS)
			sched_yield();
		else
			nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
	}
}

static void fork_prepare(void)
{
	struct me *m = myself();

	pthread_mutex_lock(&gate);
	m->forking = true;
	atomic_store_explicit(&shut, true, memory_order_seq_cst);
	for (uint32_t i = 0; i < COUNTERS; i++)
		await(&inside[i].n, i == m->id % COUNTERS ? counted(m) : 0);
	shms_unnamed_fork_prepare();
}

static void open_gate(struct me *m)
{
	m->forking = false;
	atomic_store_explicit(&shut, false, memory_order_seq_cst);
	pthread_mutex_unlock(&gate);
}

static void fork_parent(void)
{
	shms_unnamed_fork_parent();
	open_gate(myself());
}

static void fork_child(void)
{
	struct me *m = myself();
	int most = atomic_load_explicit(&highest, memory_order_relaxed), nothing = -1;

	shms_unnamed_fork_child();
	/* Others may have just looked in. */
	for (uint32_t i = 0; i < COUNTERS; i++)
		atomic_store_explicit(&inside[i].n, i == m->id % COUNTERS ? counted(m) : 0,
				      memory_order_relaxed);
	for (int fd = 0; fd <= most; fd++) {
		uint16_t owner = atomic_load_explicit(&owners[fd], memory_order_relaxed);

		if (!owner)
			continue;
		atomic_store_explicit(&owners[fd], 0, memory_order_relaxed);
		if (owner == m->id && nothing < 0)
			nothing = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (owner != m->id || nothing < 0 || dup3(nothing, fd, O_CLOEXEC) < 0)
			close(fd);
	}
	if (nothing >= 0)
		close(nothing);
	open_gate(m);
}

/* Before any other of ours: prepared last, when the locks are taken; done first in the child. */
__attribute__((constructor)) static void register_fork(void)
{
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}
