/* SPDX-License-Identifier: Apache-2.0 */
/* queue.c: fairlock.c's queue: who has the turn gives it on while another one takes a number,
 * and the sleeper is woken. */
#include "litmus.h"

/* The kernel compares the word with what the caller saw, and orders nothing
 * else: it does more than that. */
#define syscall(number, word, op, value, timeout, other, bits)                 \
	((void)(bits), ((op)&127) == FUTEX_WAIT_BITSET                         \
			       ? weak_sleep((word), WEAK_FIRST(word), (value)) \
			       : weak_wake(word))
#include WEAK_SOURCE

const int litmus_threads = 2;
const int litmus_killed = -1;
const unsigned litmus_late = WEAK_LATE;
const bool litmus_ends = true;

static struct shms_fairlock lock;

void litmus_begin(void)
{
}

void litmus_thread(int which)
{
	(void)which;
	queue(&lock);
	next(&lock);
}
