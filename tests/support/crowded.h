/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crowded.h: a scratch partition (scratch.h) of 64 MiB with a disk tier (tiered.h), to be filled
 * with objects of which each is younger than the one before: for tests of what has to go.
 */
#ifndef SHMSTORE_TEST_CROWDED_H
#define SHMSTORE_TEST_CROWDED_H

#include <shmstore/shmstore.h>
#include <stdbool.h>
#include <stdint.h>

#define MIB           (1ull << 20)
#define CROWDED_OF    ((uint64_t)64)        /* MiB of the partition */
#define CROWDED_SIZE  (1 * MIB)             /* of an object's buffer */
#define CROWDED_WHOLE (CROWDED_SIZE + 4096) /* of its file */

/* config: as tiered_begin(). False: no mount of our own, or no disk. */
bool crowded_begin(const struct shmstore_tier_config *config);
#define CROWDED_OR_SKIP(config)                                                                    \
	do {                                                                                       \
		if (!crowded_begin(config))                                                        \
			cr_skip_test("needs a tmpfs of its own (root) and a directory on disk\n"); \
	} while (0)

/* The used bytes of the file system, as statvfs() reports them. */
uint64_t crowded_used(void);
/* So that what follows is younger than what was. */
void crowded_tick(void);
/* "k<i>"; static, overwritten by the eighth next call. */
const char *nth(unsigned i);
/* Puts n objects from the first-th on; the pattern of each is its number. */
void crowded_fill(struct shmstore *s, unsigned first, unsigned n, unsigned flags);
/* Fills the partition without eviction, with objects from the 0th on. Returns
 * how many: at least so many. */
unsigned crowded_fill_up(struct shmstore *s, unsigned flags, unsigned at_least);
bool crowded_in_memory(struct shmstore *s, unsigned i);
unsigned crowded_count(struct shmstore *s, unsigned first, unsigned n); /* in memory */
int crowded_evict(struct shmstore_evict what, struct shmstore_evict_report *ret);
int crowded_evict_bytes(uint64_t bytes, struct shmstore_evict_report *ret);
/* A tier that takes so many bytes, uncompressed. */
struct shmstore_tier_config crowded_limit(uint64_t max);
/* All come back as they were; then the store is closed and nothing is
 * left, in memory or on disk. */
void crowded_finish(struct shmstore *s, unsigned first, unsigned n);

#endif
