/* SPDX-License-Identifier: Apache-2.0 */
/* tierstore.h: what a store's own operations do where a name is a stub, or an object has a clean copy. */
#ifndef SHMS_TIERSTORE_H
#define SHMS_TIERSTORE_H

#include <stdbool.h>
#include <stdint.h>

struct shmstore;
struct shms_tier;

/* The names lock is held in all of these. */
/* Is that name a stub? */
bool shms_stub_is(int dirfd, const char *name);
/* Removes a stub, and its tier file with its last name. 0, -errno. */
int shms_stub_drop(struct shmstore *s, int dirfd, const char *name);
/* The object called name is no more: nor is its clean copy needed. */
void shms_clean_drop(struct shmstore *s, const char *name);
/* Renames over name in objects/, where a stub may be. 0, -errno. */
int shms_rename_over(struct shmstore *s, int dirfd, const char *from, const char *name);

/* The tier of the user whose stubs they are: the partition's own, or for root one opened for this. */
struct shms_tier_use {
	struct shms_tier *t;
	bool temporary;
};
int shms_tier_use(struct shmstore *s, int dirfd, const char *name, struct shms_tier_use *ret);
void shms_tier_unuse(struct shms_tier_use *u);

/* A demoted object for a get. fd -1: it is in memory now, open it. Else its bytes are there at offset, size of them. */
struct shms_aside {
	int fd;
	uint64_t offset, size;
};
/* 0, or as shmstore_get(). */
int shms_tier_fetch(struct shmstore *s, const char *name, struct shms_aside *ret);
/* Says that an object was used just now: its inode's time is the clock of eviction. */
void shms_tier_touch(struct shmstore *s, int fd);

#endif
