/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait.c: libshmstore/store/wait.c and its owner's side, core/handle.c: one process waits for
 * a key; its owner puts another one and then that; a third process begins to wait, and is
 * killed. Nobody sleeps for ever.
 */
#include <stdarg.h>

#include "door.h"
#include "litmus.h"

static long litmus_syscall(long number, ...);

#define syscall          litmus_syscall
#define shms_now_mono_ns litmus_now /* no sleep ends by itself */
#undef shmstore_contains
#define shmstore_contains litmus_contains
#include WEAK_SOURCE
#include "handle.c"

const int litmus_threads = 3;
const int litmus_killed = -1;
const unsigned litmus_late = WEAK_LATE;
const bool litmus_ends = true;

static struct shms_page page;
static struct shmstore store = {.page = &page};
static _Atomic uint32_t has_key;

/* The kernel compares the word with what the caller saw. Before it looks who sleeps it has
 * a barrier (futex_wake()). */
static long litmus_syscall(long number, ...)
{
	va_list args;
	uint32_t *word;
	int op;

	if (number == SYS_membarrier)
		return weak_barrier();
	va_start(args, number);
	word = va_arg(args, uint32_t *);
	op = va_arg(args, int);
	if (op == FUTEX_WAIT) {
		weak_sleep(word, *word, va_arg(args, uint32_t));
	} else {
		weak_fence();
		weak_wake(word);
	}
	va_end(args);
	return 0;
}

uint64_t litmus_now(void)
{
	return 0;
}

int litmus_contains(struct shmstore *s, const void *key, size_t key_size)
{
	(void)s, (void)key, (void)key_size;
	return (int)atomic_load_explicit(&has_key, memory_order_acquire);
}

void litmus_begin(void)
{
}

void litmus_thread(int which)
{
	struct waiting w = {&store, &page};

	if (which == 0) {
		weak_ensure(wait_some(&w, "k", 1, 0, UINT64_MAX) == 0,
			    "a wait ends without its key");
	} else if (which == 1) {
		shms_wake(&store);
		atomic_store_explicit(&has_key, 1, memory_order_release);
		shms_wake(&store);
	} else {
		atomic_exchange_explicit(&page.waiting, 1, memory_order_acq_rel);
	}
}
