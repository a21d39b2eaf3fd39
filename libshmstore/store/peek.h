/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peek.h: packed objects of a store by its directory (packlook.h): for handles that can only read, which have no place in its
 * segments, and for lists.
 */
#ifndef SHMS_PEEK_H
#define SHMS_PEEK_H

#include <shmstore/shmstore.h>
#include <stdbool.h>

struct shms_keyname;

/* A view of a copy. 0, -ENOENT, -EPERM, -ENOMEM, … */
int shms_peek_get(struct shmstore *s, const struct shms_keyname *k, unsigned flags, struct shmstore_view **ret);
bool shms_peek_has(struct shmstore *s, const struct shms_keyname *k);
/* As shmstore_foreach(), of packed objects alone. */
int shms_peek_each(struct shmstore *s, int (*fn)(const struct shmstore_object_info *info, void *arg), void *arg);

#endif
