/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xxh3.h: XXH3 over many bytes, by the widest vectors that this processor has: 40 GB/s in the
 * cache, where what every x86-64 has gives 17. libxxhash can be built without that (cmake looks),
 * and has it for x86 only; the values are the same. Its static library has it not, on
 * Debian: so the functions are weak, and where they are not there the plain ones are called.
 */
#ifndef SHMS_XXH3_H
#define SHMS_XXH3_H

#ifdef SHMSTORE_XXH3_DISPATCH
#define XXH_DISPATCH_DISABLE_REPLACE
#include <xxh_x86dispatch.h>
#pragma weak XXH3_64bits_dispatch
#pragma weak XXH3_128bits_dispatch
#pragma weak XXH3_128bits_update_dispatch
#define XXH3_64bits(b, n) (XXH3_64bits_dispatch ? XXH3_64bits_dispatch(b, n) : (XXH3_64bits)(b, n))
#define XXH3_128bits(b, n) \
	(XXH3_128bits_dispatch ? XXH3_128bits_dispatch(b, n) : (XXH3_128bits)(b, n))
#define XXH3_128bits_update(s, b, n)                                          \
	(XXH3_128bits_update_dispatch ? XXH3_128bits_update_dispatch(s, b, n) \
				      : (XXH3_128bits_update)(s, b, n))
#else
#include <xxhash.h>
#endif

#include <stdint.h>

/* The hash of all that was fed in, low half first. */
static inline void shms_xxh3_digest(const XXH3_state_t *state, uint64_t ret_hash[2])
{
	XXH128_hash_t h = XXH3_128bits_digest(state);

	ret_hash[0] = h.low64;
	ret_hash[1] = h.high64;
}

#endif
