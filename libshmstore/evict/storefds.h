/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storefds.h: the candidates' stores, open: objects/ and clean/ of each, as many at
 * once as it takes and a few more. The descriptors are our own, so that a lock taken by
 * them is not the store handle's.
 */
#ifndef SHMS_STOREFDS_H
#define SHMS_STOREFDS_H

#include <stdbool.h>
#include <stdint.h>

#include "candidates.h"

struct shms_storefds_one {
	int objects_fd, clean_fd;
	uint32_t n_use;
	bool stuck; /* its names could not be locked: that was waited for once, and is not again */
};

struct shms_storefds {
	struct shmstore_partition *p;
	const struct shms_candidates *c;
	struct shms_storefds_one *v; /* c->n_stores */
	uint32_t n_open;
};

/* 0, -ENOMEM. */
int shms_storefds_init(struct shms_storefds *f, struct shmstore_partition *p,
		       const struct shms_candidates *c);
void shms_storefds_deinit(struct shms_storefds *f);
/* *ret stays open until it is given back. 0, -ENOENT (the store has gone, or does not
 * take part), -EMFILE, -errno. */
int shms_storefds_take(struct shms_storefds *f, uint32_t store,
		       const struct shms_storefds_one **ret);
void shms_storefds_back(struct shms_storefds *f, uint32_t store);

#endif
