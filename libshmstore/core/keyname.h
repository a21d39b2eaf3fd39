/* SPDX-License-Identifier: Apache-2.0 */
/* keyname.h: a key, and the name in objects/ that it has or is to get. */
#ifndef SHMS_KEYNAME_H
#define SHMS_KEYNAME_H

#include <stddef.h>

#include "name.h"
#include "pack.h"

/* A key on its way to a file name. */
struct shms_keyname {
	const void *key;
	size_t key_size;
	enum shms_name_kind kind;
	/* only if the key means this packed object: else -EAGAIN. NULL: whatever it means */
	const struct shms_pack_view *instead;
	char name[SHMS_NAME_SIZE];
};

/* 0, -EINVAL. */
int shms_keyname_init(struct shms_keyname *k, const void *key, size_t key_size);
/* The same without the name, which packed objects do not need; shms_keyname_name()
 * makes it, unless it is there. */
int shms_keyname_key(struct shms_keyname *k, const void *key, size_t key_size);
void shms_keyname_name(struct shms_keyname *k);

/*
 * Under which of its two names a long key is in objects/. XXH3-128, which names it, is fast and no
 * cryptographic hash: who may choose keys can make two of one hash. The first of them has the usual
 * name, any other its second one (name.h). A key is under one of the two at most.
 *
 * Sets k->name to the name that the key is under; where it is under none, to the one that it is to
 * get. Names that are no hashes stay, unasked: of those the answer is 1. The answer holds as long
 * as the names lock is held; without it, until it is used, at best. 1: it is there; 0: it is not;
 * -errno. A name whose key is damaged beyond recognition counts as this key's.
 */
int shms_key_find(int objects_fd, struct shms_keyname *k);

#endif
