/* SPDX-License-Identifier: Apache-2.0 */
/* blind.c: the hash that tier files are checked by, answering the same for all bytes: tier_damage
 * must then find wrong data. */
#include <xxhash.h>

/* libxxhash's own, where the library takes that. */
XXH128_hash_t XXH3_128bits_dispatch(const void *bytes, size_t size);

XXH128_hash_t XXH3_128bits(const void *bytes, size_t size)
{
	(void)bytes, (void)size;
	return (XXH128_hash_t){1, 2};
}

XXH128_hash_t XXH3_128bits_dispatch(const void *bytes, size_t size)
{
	return XXH3_128bits(bytes, size);
}
