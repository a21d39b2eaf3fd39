/* SPDX-License-Identifier: Apache-2.0 */
/* blake2b.h: BLAKE2b with 32 bytes of digest (RFC 7693), without a key: a hash for which nobody can
 * make two inputs of one value. Pure. */
#ifndef SHMS_BLAKE2B_H
#define SHMS_BLAKE2B_H

#include <stddef.h>
#include <stdint.h>

#define SHMS_BLAKE2B_SIZE 32u

void shms_blake2b(const void *data, size_t size, uint8_t ret_digest[SHMS_BLAKE2B_SIZE]);

#endif
