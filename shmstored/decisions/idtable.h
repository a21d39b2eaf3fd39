/* SPDX-License-Identifier: Apache-2.0 */
/*
 * idtable.h: uthash for keys of one or more 64-bit words: ids, often small numbers that follow each
 * other, or hashes. Out of memory is an element's tbl being NULL. Pure.
 */
#ifndef IDTABLE_H
#define IDTABLE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline unsigned idtable_hash(const void *key, size_t size)
{
	const unsigned char *at = key;
	uint64_t hash = 0, word;

	for (size_t i = 0; i + sizeof(word) <= size; i += sizeof(word)) {
		memcpy(&word, at + i, sizeof(word));
		hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		hash = (hash ^ (hash >> 32)) * UINT64_C(0xd6e8feb86659fd93);
		hash ^= hash >> 32;
	}
	return (unsigned)hash;
}

#define HASH_NONFATAL_OOM            1
#define HASH_FUNCTION(key, size, to) ((to) = idtable_hash(key, size))
#include <uthash.h>

#endif
