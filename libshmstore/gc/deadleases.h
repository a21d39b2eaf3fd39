/* SPDX-License-Identifier: Apache-2.0 */
/* deadleases.h: what tickets of dead stores keep in memory, for who finds no room. */
#ifndef SHMS_DEADLEASES_H
#define SHMS_DEADLEASES_H

#include <stdint.h>

struct shmstore;
struct shmstore_partition;

/*
 * Ends the leases of files that the last owner of the store left, who was killed. Returns the bytes
 * that are free by that. The store's own leases stay.
 */
uint64_t shms_deadleases_end_former(struct shmstore *s);

struct shms_deadleases {
	uint64_t bytes;     /* of files that dead stores have leased, each inode once in a store */
	uint64_t expiry_ms; /* when the last of them ends, in ms of CLOCK_BOOTTIME */
};
/* Looks at all stores. */
void shms_deadleases_look(struct shmstore_partition *p, struct shms_deadleases *ret);

#endif
