/* SPDX-License-Identifier: Apache-2.0 */
/* turns.c: see turns.h. The end of a turn gives it to the longest waiter, so that no newcomer is
 * faster. Each sleeps on a word of its own, and is woken alone. */
#include "turns.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#include "cleanup.h"
#include "sys.h"

#define TICK_NS 1000000u

struct shms_turn {
	struct shms_turn *prev, *next;
	_Atomic uint32_t mine;
};

void shms_turns_init(struct shms_turns *t)
{
	pthread_mutex_init(&t->lock, NULL);
	atomic_init(&t->first, NULL);
	atomic_init(&t->taken, false);
}

void shms_turns_deinit(struct shms_turns *t)
{
	pthread_mutex_destroy(&t->lock);
}

/* True: it is ours at once. */
static bool queue(struct shms_turns *t, struct shms_turn *me)
{
	bool ours;

	SHMS_HELD(&t->lock);
	ours = !shms_turns_taken(t);
	if (ours)
		atomic_store_explicit(&t->taken, true, memory_order_relaxed);
	else
		DL_APPEND(t->first, me);
	return ours;
}

/* False: the turn came meanwhile. */
static bool give_up(struct shms_turns *t, struct shms_turn *me)
{
	bool came;

	SHMS_HELD(&t->lock);
	came = atomic_load_explicit(&me->mine, memory_order_relaxed) != 0;
	if (!came)
		DL_DELETE(t->first, me);
	return !came;
}

bool shms_turns_take(struct shms_turns *t, uint64_t ns, int (*tick)(void *arg), void *arg)
{
	struct shms_turn me = {0};
	uint64_t now = shms_now_mono_ns(), end = ns < UINT64_MAX - now ? now + ns : UINT64_MAX;

	if (queue(t, &me))
		return true;
	/* Acquire: pairs with shms_turns_end(). */
	while (!atomic_load_explicit(&me.mine, memory_order_acquire)) {
		struct timespec wait;

		if (now >= end || (tick && tick(arg)))
			return !give_up(t, &me);
		wait = shms_timespec(tick && end - now > TICK_NS ? TICK_NS : end - now);
		syscall(SYS_futex, &me.mine, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, &wait, NULL, 0);
		now = shms_now_mono_ns();
	}
	return true;
}

void shms_turns_end(struct shms_turns *t)
{
	struct shms_turn *next;
	_Atomic uint32_t *mine;

	SHMS_HELD(&t->lock);
	next = t->first;
	if (next) {
		mine = &next->mine;
		DL_DELETE(t->first, next);
		/* From here on it may be gone. */
		atomic_store_explicit(mine, 1, memory_order_release);
		syscall(SYS_futex, mine, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
	} else {
		atomic_store_explicit(&t->taken, false, memory_order_relaxed);
	}
}
