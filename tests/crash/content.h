/* SPDX-License-Identifier: Apache-2.0 */
/*
 * content.h: objects that say what they are. The header names a seed and a size, every 8 bytes of
 * the buffers follow from the seed and their place: any wrong, missing, shifted or mixed byte
 * shows, in any page, without knowing what was expected.
 */
#ifndef CONTENT_H
#define CONTENT_H

#include <shmstore/shmstore.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* or'ed into a seed: bytes that compress well (others do not at all) */
#define CONTENT_SOFT (1ull << 62)

struct content {
	uint64_t seed; /* not 0 */
	uint64_t size; /* bytes over all buffers: none from 0, one below 1024, else two */
};

void content_fill(void *buf, uint64_t size, uint64_t seed, uint64_t offset);
bool content_matches(const void *buf, uint64_t size, uint64_t seed, uint64_t offset);

/* Makes room so that content_put() of this size by this thread allocates
 * nothing itself. 0, -ENOMEM. */
int content_reserve(uint64_t size);
/* Return: shmstore_put()'s. */
int content_put(struct shmstore *s, const void *key, size_t key_size, struct content c,
		unsigned flags);
/* Puts what the view shows, once more. Return: shmstore_put()'s. */
int content_put_view(struct shmstore *s, const struct shmstore_view *v, const void *key,
		     size_t key_size, unsigned flags);
/* Gives the object of key from the key to, a further one, and then takes its own.
 * Return: the failing call's. */
int content_rename(struct shmstore *s, const char *from, const char *to);
/* create, fill, seal. Return: the failing call's. */
int content_create(struct shmstore *s, const void *key, size_t key_size, struct content c,
		   unsigned flags);
void content_fill_writer(struct shmstore_writer *w, struct content c);

/* NULL where the view's content is whole (and what it says is in *ret), else what is wrong. */
const char *content_check(const struct shmstore_view *v, struct content *ret);
/* The same over the bytes of an object's file, which were read or mapped by hand. */
const char *content_check_file(const void *file, size_t size, struct content *ret);

/* gets key and checks it. 0; the get's -errno; -EILSEQ where the content is
 * wrong (*ret_why says what). */
int content_get(struct shmstore *s, const void *key, size_t key_size, struct content *ret,
		const char **ret_why);

#endif
