/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xxh3.h: XXH3 over many bytes, by the widest vectors that this processor has: 40 GB/s in the cache, where what every x86-64 has gives 17.
 * libxxhash can be built without that (cmake looks), and has it for x86 only; the values are the same.
 */
#ifndef SHMS_XXH3_H
#define SHMS_XXH3_H

#ifdef SHMSTORE_XXH3_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#endif
