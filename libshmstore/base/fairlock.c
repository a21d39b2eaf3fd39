/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fairlock.c: see lightlock.h.
 *
 * n_waiting is up before its waiter queues, so that at most one more of each other thread gets by
 * unseen. The thread whose turn it is asks the pthread lock, and gives the turn on as soon as it
 * has that: readers one after the other, and all at once within. A waiter notes at how many passes
 * it came; while it has the turn, the others may pass until there are PASSES more. The one behind
 * it in the queue has come later and waited meanwhile, so that all of them together wait no longer.
 *
 * Rejected: PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP, with which threads that put starve those
 * that get, and each put stops all threads that hand off; first come first served from the
 * beginning, where each change of hands is a change of threads.
 */
#include "fairlock.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Some tens of ms of short calls. The fewer, the more often the others are put to sleep: of 32
 * threads that hand off beside one that puts, those got 76 % done with 1,024, and 90 % with this,
 * of what they do when the one never gets its turn; with more it is no better.
 */
#define PASSES 4096u

void shms_fairlock_init(struct shms_fairlock *l)
{
	pthread_rwlock_init(&l->lock, NULL);
	l->alone = false;
	atomic_init(&l->n_waiting, 0);
	atomic_init(&l->passes, 0);
	atomic_init(&l->limit, 0);
	atomic_init(&l->last, 0);
	atomic_init(&l->now, 0);
}

static void futex(_Atomic uint32_t *word, int op, uint32_t value, uint32_t bits)
{
	syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, bits);
}

/* Of those who sleep only who comes next is woken: by the last bits of its number. */
static uint32_t bit_of(uint32_t number)
{
	return UINT32_C(1) << (number & 31);
}

static void queue(struct shms_fairlock *l)
{
	uint32_t mine = atomic_fetch_add_explicit(&l->last, 1, memory_order_seq_cst), now;

	/* Sequentially, as next() has it; and acquires what they did who gave the turn on. */
	while ((now = atomic_load_explicit(&l->now, memory_order_seq_cst)) != mine)
		futex(&l->now, FUTEX_WAIT_BITSET, now, bit_of(mine));
}

static void next(struct shms_fairlock *l)
{
	/* Sequentially: who takes a number later sees the turn, who took it before is seen here. */
	uint32_t turn = atomic_fetch_add_explicit(&l->now, 1, memory_order_seq_cst) + 1;

	if (atomic_load_explicit(&l->last, memory_order_seq_cst) != turn)
		futex(&l->now, FUTEX_WAKE_BITSET, INT_MAX, bit_of(turn));
}

/* Does somebody wait who was passed often enough? */
static bool must_queue(struct shms_fairlock *l)
{
	if (!atomic_load_explicit(&l->n_waiting, memory_order_relaxed))
		return false;
	return (int32_t)(atomic_fetch_add_explicit(&l->passes, 1, memory_order_relaxed) -
			 atomic_load_explicit(&l->limit, memory_order_relaxed)) >= 0;
}

void shms_fairlock_share_among(struct shms_fairlock *l)
{
	if (!must_queue(l)) {
		pthread_rwlock_rdlock(&l->lock);
		return;
	}
	queue(l);
	pthread_rwlock_rdlock(&l->lock);
	next(l);
}

void shms_fairlock_take_among(struct shms_fairlock *l)
{
	uint32_t limit;

	if (!must_queue(l) && pthread_rwlock_trywrlock(&l->lock) == 0)
		return;
	limit = atomic_load_explicit(&l->passes, memory_order_relaxed) + PASSES;
	atomic_fetch_add_explicit(&l->n_waiting, 1, memory_order_relaxed);
	queue(l);
	atomic_store_explicit(&l->limit, limit, memory_order_relaxed);
	pthread_rwlock_wrlock(&l->lock);
	atomic_fetch_sub_explicit(&l->n_waiting, 1, memory_order_relaxed);
	next(l);
}

void shms_fairlock_release_among(struct shms_fairlock *l)
{
	pthread_rwlock_unlock(&l->lock);
}
