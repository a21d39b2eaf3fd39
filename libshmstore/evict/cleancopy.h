/* SPDX-License-Identifier: Apache-2.0 */
/* cleancopy.h: gives up tier files of objects that are in memory as well, least recently used
 * first, where the disk is wanted. */
#ifndef SHMS_CLEANCOPY_H
#define SHMS_CLEANCOPY_H

#include <stdint.h>

#include "candidates.h"
#include "storefds.h"

struct shms_cleancopy {
	const struct shms_candidates *c;
	const struct shms_evict_user *users;
	struct shms_storefds *fds;
	struct shmstore *s; /* the handle of the own store; NULL = none */
};

/* The candidates of one user that have clean copies, least recently used first:
 * indices, to be freed. 0, -ENOMEM. */
int shms_cleancopy_list(const struct shms_candidates *c, uint32_t user, uint32_t **ret,
			uint32_t *ret_n);
/* Gives up the copy of one. Returns bytes that the disk got back: 0 where others need it still, or
 * somebody holds a store's names. */
uint64_t shms_cleancopy_drop(const struct shms_cleancopy *k, uint32_t candidate);

#endif
