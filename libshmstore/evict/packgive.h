/* SPDX-License-Identifier: Apache-2.0 */
/* packgive.h: memory of the store's segments for others, who asked for it by a word of the store's
 * page (struct wire_packed). */
#ifndef SHMS_PACKGIVE_H
#define SHMS_PACKGIVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "opened.h"

void shms_packgive_asked(struct shmstore *s);

/* For the owner's handle, at the begin of calls, with no lock held: gives what it is asked for, a
 * bounded part of it at a time. */
static inline void shms_packgive(struct shmstore *s)
{
	/* Relaxed: who takes it does so by an exchange. */
	if (atomic_load_explicit(&s->page->packed.wanted, memory_order_relaxed))
		shms_packgive_asked(s);
}
/* From the end of the store's open until the begin of its close any thread of the process may give
 * for it, one at a time. */
void shms_packgive_may(struct shmstore *s);
void shms_packgive_end(struct shmstore *s);
/* Until nothing is wanted, or so much time has passed. */
void shms_packgive_for(struct shmstore *s, uint64_t ns);

/*
 * Asks live stores for memory of their segments, which only their own processes can give back.
 *
 * A store of our own process gives at once. Another one whose process makes no call gives nothing.
 * It is waited for once, for a tenth of a second; one that has begun to give, for two.
 */

#define SHMS_PACKASK_STORES 16u /* at a time */

/* A store that was asked. */
struct shms_packasked {
	int page_fd;
	uint64_t given, asked_ns; /* of its page, before */
};

struct shms_packask {
	struct shms_packasked v[SHMS_PACKASK_STORES];
	size_t n;
};

/* uid: whose stores, SHMSTORE_EVICT_ALL: everybody's. own: the inode of a store's directory that is
 * left out; 0: none. Returns bytes of packed objects. */
uint64_t shms_packask_bytes(struct shmstore_partition *p, uid_t uid, uint64_t own);
/* Asks for so many bytes. shms_packask_end() is owed. */
void shms_packask_begin(struct shmstore_partition *p, uid_t uid, uint64_t own, uint64_t bytes,
			struct shms_packask *ret);
/* Waits until that is given, or all have answered, or too much time has
 * passed. Returns the bytes given. */
uint64_t shms_packask_end(struct shms_packask *k, uint64_t bytes);
/* For a put of s that finds no room. True: some memory was given. */
bool shms_packask_for(struct shmstore *s, uint64_t bytes);

#endif
