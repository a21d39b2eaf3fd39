/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h: recycled files of stores that are not ours, taken for who needs their memory now. */
#ifndef SHMS_POOL_H
#define SHMS_POOL_H

#include <stdint.h>
#include <sys/types.h>

struct shmstore_partition;

/* Takes the cold files (recycle.h) of every store in stores/ of that user which nobody has used for age_ns. Returns the bytes that are free now. */
uint64_t shms_pool_take(struct shmstore_partition *p, uid_t uid, uint64_t age_ns);
/* The same of the one store that is open as storefd. */
uint64_t shms_pool_take_one(int storefd, uint64_t age_ns);

#endif
