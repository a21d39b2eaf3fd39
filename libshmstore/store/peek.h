/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peek.h: packed objects of a store for handles that can only read: by its index and a
 * place in its segments (packread.h), or where that cannot be by a look at all slots
 * (packlook.h); and for lists.
 */
#ifndef SHMS_PEEK_H
#define SHMS_PEEK_H

#include <shmstore/shmstore.h>

struct shms_keyname;

/* Of a copy where the reader can have no place. 0, -ENOENT, -EPERM, -ENOMEM, … */
int shms_peek_get(struct shmstore *s, const struct shms_keyname *k, unsigned flags,
		  struct shmstore_view **ret);
/* 1; 0: the store had no such packed object at some moment of the call; -errno. */
int shms_peek_has(struct shmstore *s, const struct shms_keyname *k);
/* As shmstore_foreach(), of packed objects alone. */
int shms_peek_each(struct shmstore *s,
		   int (*fn)(const struct shmstore_object_info *info, void *arg), void *arg);

#endif
