/* SPDX-License-Identifier: Apache-2.0 */
/* hash.h: uthash with the hash function that the rest of shmstore uses; out of memory is an
 * element's tbl being NULL. */
#ifndef HASH_H
#define HASH_H

#include <xxhash.h>

#define HASH_NONFATAL_OOM             1
#define HASH_FUNCTION(key, size, ret) ((ret) = (unsigned)XXH3_64bits(key, size))
#include <uthash.h>

#endif
