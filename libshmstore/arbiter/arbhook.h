/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbhook.h: what a put, a create, a promotion do about the arbiter: reserve before memory is
 * taken, and say what became of it.
 *
 * Nothing where the store was not opened with SHMSTORE_OPEN_ARBITRATE, and the thread spends no
 * reservation. Nothing either where the thread's context is not bound: such a one does not wait. A
 * put into a recycled file takes no memory, an adoption is a link.
 */
#ifndef SHMS_ARBHOOK_H
#define SHMS_ARBHOOK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "arbitrate.h"
#include "opened.h"

#define SHMS_HOLD_NOW (-1) /* instead of tries: nothing is waited for, -ENOSPC */

/* The reservation for one piece of memory. */
struct shms_hold {
	struct shmstore_arb_reservation own;
	struct shmstore_arb_reservation *spent; /* or what it comes out of */
	uint64_t bytes;
};

int shms_hold_take_hooked(struct shmstore *s, uint64_t size, int tries, struct shms_hold *ret);
void shms_hold_end_hooked(struct shmstore *s, struct shms_hold *hold, bool taken);
bool shms_hold_again_hooked(struct shmstore *s, int tries);
void shms_hold_freed_wanted(struct shmstore *s);

static inline bool shms_hooked(const struct shmstore *s)
{
	return s->arb->hook || atomic_load_explicit(&s->arb->n_spending, memory_order_relaxed);
}

/*
 * Before a file of size bytes takes memory; *ret goes to shms_hold_end(). tries: refusals of the
 * kernel for the same so far. 0, an outcome (> 0), -ENOMEM. No lock may be held: it may wait.
 */
static inline int shms_hold_take(struct shmstore *s, uint64_t size, int tries,
				 struct shms_hold *ret)
{
	*ret = (struct shms_hold){.bytes = 0};
	return shms_hooked(s) ? shms_hold_take_hooked(s, size, tries, ret) : 0;
}

/* taken: the memory is there now; else it was not taken, or has gone back. */
static inline void shms_hold_end(struct shmstore *s, struct shms_hold *hold, bool taken)
{
	if (hold->bytes)
		shms_hold_end_hooked(s, hold, taken);
}

/* The kernel had no room for what was granted (others take some, unasked): is it worth another
 * reservation? Waits a little. tries: from 0. */
static inline bool shms_hold_again(struct shmstore *s, int tries)
{
	return shms_hooked(s) && shms_hold_again_hooked(s, tries);
}

/* Memory of the partition went back to the kernel: who waits for it is to be told. */
static inline void shms_hold_freed(struct shmstore *s)
{
	if (shms_memory_wanted(s))
		shms_hold_freed_wanted(s);
}

#endif
