/* SPDX-License-Identifier: Apache-2.0 */
/* peername.c: see peername.h. */
#include "peername.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

void shms_peer_name(const char *address, char ret_name[SHMS_PEER_NAME])
{
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical, XXH3_128bits(address, strlen(address)));
	for (size_t i = 0; i < 16; i++)
		snprintf(ret_name + 2 * i, 3, "%02x", canonical.digest[i]);
}
