/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiered.h: a disk tier for the scratch partition (scratch.h), and what is in it as the file
 * systems tell it: names are counted and read here, not asked from the library. The directory on
 * disk goes with the process, however that ends.
 */
#ifndef SHMSTORE_TEST_TIERED_H
#define SHMSTORE_TEST_TIERED_H

#include <shmstore/shmstore.h>
#include <stdbool.h>

#include "tierformat.h"

#define TIERED_PATH 1024

/*
 * A new directory on a file system that is not memory: $SHMSTORE_TEST_DISK, else /var/tmp. NULL:
 * there is none; a test skips then. The same one whenever it is called.
 */
const char *tiered_disk(void);
/* Gives scratch_partition() its tier there. config: NULL is SHMSTORE_TIER_CONFIG_INIT; its path is
 * filled in. False: no disk. */
bool tiered_begin(const struct shmstore_tier_config *config);
/* For a Test: the partition's tier with its defaults, or the test is skipped. */
#define TIERED_OR_SKIP()                                                                  \
	do {                                                                              \
		if (!tiered_begin(NULL))                                                  \
			cr_skip_test("no file system on disk: set SHMSTORE_TEST_DISK\n"); \
	} while (0)

/* Ours: of tier files, of anchors, of residents. */
int tiered_count_files(void);
int tiered_count_anchors(void);
int tiered_count_residents(void);
/* The stub that a key that is its own name has in objects/, or in clean/. False: none there. */
bool tiered_stub(const char *store, const char *part, const char *key, struct shms_stub *ret);
/* The path of the tier file of a key, demoted or clean; static. NULL: it has none. */
const char *tiered_file(const char *store, const char *key);
/* tiered_file()'s bytes at offset, xor 0xff. */
void tiered_damage(const char *store, const char *key, uint64_t offset);
/* After ensure_nothing_left(): no tier file, anchor or resident either. */
void ensure_tier_empty(void);

#endif
