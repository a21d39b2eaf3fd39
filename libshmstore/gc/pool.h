/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h: takes memory that other stores keep for their next puts, for a put that needs it now. */
#ifndef SHMS_POOL_H
#define SHMS_POOL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct shmstore_partition;

/*
 * Takes the cold files (recycle.h) of every store in stores/ of that user, and what its segments
 * have for no object, but of the one whose directory has the inode own. Returns the bytes that are
 * free now. *ret_again: as of shms_seguse_take().
 */
uint64_t shms_pool_take(struct shmstore_partition *p, uid_t uid, ino_t own, bool *ret_again);
/* Takes the cold files of the store that is open as storefd which nobody has used for age_ns. */
uint64_t shms_pool_take_one(int storefd, uint64_t age_ns);

#endif
