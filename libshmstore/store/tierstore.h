/* SPDX-License-Identifier: Apache-2.0 */
/* tierstore.h: a name of a store is a stub: the tier that its object is in, and the object brought
 * back. The names lock is held. */
#ifndef SHMS_TIERSTORE_H
#define SHMS_TIERSTORE_H

#include <stdbool.h>
#include <stdint.h>

struct shmstore;
struct shms_tier;

/* The tier of the user whose stubs they are: the partition's own, or for
 * root one opened for this. */
struct shms_tier_use {
	struct shms_tier *t;
	bool temporary;
};
int shms_tier_use(struct shmstore *s, int dirfd, const char *name, struct shms_tier_use *ret);
void shms_tier_unuse(struct shms_tier_use *u);

/* A demoted object for a get. fd -1: it is in memory now, open it. Else its bytes are
 * there at offset, size of them. */
struct shms_aside {
	int fd;
	uint64_t offset, size;
};
/* 0, or as shmstore_get(). */
int shms_tier_fetch(struct shmstore *s, const char *name, struct shms_aside *ret);

#endif
