/* SPDX-License-Identifier: Apache-2.0 */
/* arbcase.h: what tests of the library's arbiter begin with: a fake one, a store, a
 * task; a thread that waits. */
#ifndef SHMSTORE_TEST_ARBCASE_H
#define SHMSTORE_TEST_ARBCASE_H

#include <pthread.h>
#include <shmstore/arbiter.h>

#include "fakearbiter.h"

#define ARB_KIB UINT64_C(1024)
#define ARB_MIB (UINT64_C(1024) * ARB_KIB)

struct arbcase {
	struct shmstore_partition *p;
	struct fakearb *a;
	struct shmstore *s;
	uint32_t task; /* the calling thread is bound to it */
};

/* options.pack_max of the stores that arbcase_store() opens; 0 at first. */
extern uint64_t arbcase_pack_max;

/* capacity of the partition's pool, and of a lease (0: none is given). flags: SHMSTORE_OPEN_*. */
struct arbcase arbcase_begin(uint64_t capacity, uint64_t lease, unsigned flags);
/* Closes all; nothing of the store's is booked any more. */
void arbcase_end(struct arbcase *c);
/* A store that is registered. */
struct shmstore *arbcase_store(struct shmstore_partition *p, const char *name, unsigned flags);
uint32_t arbcase_task(struct shmstore *s, int64_t priority);

/* A thread that binds itself to a task, reserves bytes of the partition,
 * and says what came of it. */
struct arbwaiter {
	struct shmstore *s;
	uint32_t task;
	uint64_t bytes, timeout_ms;
	struct shmstore_arb_reservation r;
	int outcome;
	pthread_t thread;
};
void arbwaiter_start(struct arbwaiter *w, struct shmstore *s, uint32_t task, uint64_t bytes,
		     uint64_t timeout_ms);
/* The outcome; what it got is released where release. */
int arbwaiter_end(struct arbwaiter *w, bool release);

#endif
