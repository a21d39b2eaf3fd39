/* SPDX-License-Identifier: Apache-2.0 */
/* storelist.h: the stores of a partition as a list, and a store out of it opened for reading. */
#ifndef STORELIST_H
#define STORELIST_H

#include <shmstore/inspect.h>

#include "admin.h"

struct storelist {
	size_t n_stores;
	struct shmstore_store_info *stores; /* whose texts are the list's, but no address */
};

#define STORELIST_NULL ((struct storelist){0, NULL})
/* A local that is freed. */
#define _stores_       __attribute__((cleanup(storelist_deinit)))

/* 0 or as shmstore_partition_stores(): the list is empty then. storelist_deinit() is owed in both
 * cases. */
int storelist_read(struct shmstore_partition *p, struct storelist *ret);
void storelist_deinit(struct storelist *l);
/* The store called name, or at that absolute path; where two have that name, the living
 * one. NULL: none. Owned by l. */
const struct shmstore_store_info *storelist_find(const struct storelist *l, const char *name);
/* 0 or as shmstore_open(). */
int storelist_open(struct shmstore_partition *p, const struct shmstore_store_info *entry,
		   struct shmstore **ret);
/*
 * Kept stores that nobody owns have nobody to notice that the partition has a disk tier now: those
 * of ours are opened and closed once, so that their objects can be moved there. A store that
 * cannot be opened stays as it is.
 */
void storelist_join_tier(struct shmstore_partition *p);

#endif
