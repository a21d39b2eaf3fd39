/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forge.h: object files made by hand, right ones and wrong ones. The bytes are built in memory, may
 * be damaged there, and get their hash recomputed where a test wants to reach the checks behind it.
 */
#ifndef SHMSTORE_TEST_FORGE_H
#define SHMSTORE_TEST_FORGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format.h"

struct forged {
	unsigned char *file; /* 4096-byte aligned */
	size_t size;
	struct shms_layout layout;
};

/* An object of n_buffers buffers filled with pattern seeds 100, 101, …, a
 * metadata of pattern seed 7. */
struct forged forge_object(const void *key, size_t key_size, size_t metadata_size,
			   const uint64_t *sizes, size_t n_buffers);
void forge_free(struct forged *f);
static inline struct shms_superblock *forged_sb(struct forged *f)
{
	return (struct shms_superblock *)(void *)f->file;
}
static inline struct shms_entry *forged_table(struct forged *f)
{
	return (struct shms_entry *)(void *)(f->file + f->layout.table_off);
}
/* Recomputes the header's hash over what the superblock now says, as far
 * as that lies in the file. */
void forge_rehash(struct forged *f);
/* Writes the object to path, mode 0400. */
void forge_write(const struct forged *f, const char *path);

#endif
