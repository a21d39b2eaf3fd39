/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weak.h: put in front of a source of libshmstore, it has its atomic accesses made by the machine
 * of weak.c, in which stores come late.
 */
#ifndef WEAK_H
#define WEAK_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wcast-qual"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wunused-value"
#pragma GCC diagnostic ignored "-Wunused-function"

#define WEAK_LATE 16u

uint64_t weak_load(const volatile void *at, uint64_t first, memory_order order);
void weak_store(const volatile void *at, uint64_t first, uint64_t value, memory_order order);
/* Adds; returns what was there. */
uint64_t weak_add(const volatile void *at, uint64_t first, uint64_t n, memory_order order);
/* Changes the word by '=', '|', '&' or '^'; returns what was there. */
uint64_t weak_change(const volatile void *at, uint64_t first, int how, uint64_t with,
		     memory_order order);
bool weak_cas(const volatile void *at, uint64_t first, uint64_t expected, uint64_t value,
	      memory_order order);
/* A fence. */
void weak_order(memory_order order);
/* Waits until all that this thread stored is in memory. */
void weak_fence(void);
/* Waits until all that any thread stored is in memory. */
int weak_barrier(void);
void weak_lock(pthread_mutex_t *m);
void weak_unlock(pthread_mutex_t *m);
/* Somebody else is waited for. */
int weak_pause(void);
/* Sleeps while the word in memory is value, as futex(2); wakes all. */
void weak_sleep(const volatile void *at, uint64_t first, uint64_t value);
void weak_wake(const volatile void *at);
/* Must hold; ends the search where not. */
void weak_ensure(bool holds, const char *what);

#define WEAK_FIRST(p) \
	((uint64_t) * (const volatile __typeof__((void)0, *(p)) *)(const volatile void *)(p))
#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub_explicit
#undef atomic_exchange_explicit
#undef atomic_fetch_or_explicit
#undef atomic_fetch_and_explicit
#undef atomic_fetch_xor_explicit
#undef atomic_compare_exchange_strong_explicit
#undef atomic_thread_fence
#undef atomic_compare_exchange_weak_explicit
#define atomic_load_explicit(p, order) \
	((__typeof__((void)0, *(p)))weak_load((p), WEAK_FIRST(p), (order)))
#define atomic_store_explicit(p, v, order) weak_store((p), WEAK_FIRST(p), (uint64_t)(v), (order))
#define atomic_fetch_add_explicit(p, n, order) \
	((__typeof__((void)0, *(p)))weak_add((p), WEAK_FIRST(p), (uint64_t)(n), (order)))
#define atomic_fetch_sub_explicit(p, n, order) \
	((__typeof__((void)0, *(p)))weak_add((p), WEAK_FIRST(p), -(uint64_t)(n), (order)))
#define WEAK_CHANGE(p, how, v, order) \
	((__typeof__((void)0, *(p)))weak_change((p), WEAK_FIRST(p), (how), (uint64_t)(v), (order)))
#define atomic_exchange_explicit(p, v, order)  WEAK_CHANGE(p, '=', v, order)
#define atomic_fetch_or_explicit(p, v, order)  WEAK_CHANGE(p, '|', v, order)
#define atomic_fetch_and_explicit(p, v, order) WEAK_CHANGE(p, '&', v, order)
#define atomic_fetch_xor_explicit(p, v, order) WEAK_CHANGE(p, '^', v, order)
#define atomic_compare_exchange_strong_explicit(p, old, v, order, order2) \
	weak_cas((p), WEAK_FIRST(p), *(old), (uint64_t)(v), (order))
#define atomic_thread_fence weak_order
/* Of numbers that only one thread at a time changes here. */
#define atomic_compare_exchange_weak_explicit(p, old, v, order, order2) \
	(atomic_store_explicit(p, v, order), true)
#define pthread_mutex_lock   weak_lock
#define pthread_mutex_unlock weak_unlock
#define sched_yield          weak_pause
#define nanosleep(a, b)      weak_pause()
#endif
