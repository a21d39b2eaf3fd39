/* SPDX-License-Identifier: Apache-2.0 */
/* publish.h: a key and the name in objects/ that it has; and a finished file gets that name: the
 * one instant at which an object comes to be. */
#ifndef SHMS_PUBLISH_H
#define SHMS_PUBLISH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format.h"
#include "name.h"
#include "pack.h"
#include "recycle.h"

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

/* Flags of put and create. */
#define SHMS_PUT_FLAGS \
	(SHMSTORE_REPLACE | SHMSTORE_CHECKSUM | SHMSTORE_WAIT | SHMSTORE_PIN | SHMSTORE_NO_EVICT)

/* All that follow: 0, -EEXIST without replace, -errno. Success books the object. */
/* The unnamed file fd. Takes *fd (sets it to -1) where the file is worth keeping for recycling. */
int shms_publish_fd(struct shmstore *s, int *fd, const struct shms_keyname *k,
		    const struct shms_layout *l, bool replace);
/*
 * A taken slot's file. Consumes the slot, also on error, but for -ENOENT: the file's name is gone
 * by somebody else's hand, and cannot come back; the caller discards the slot.
 */
int shms_publish_slot(struct shmstore *s, struct shms_slot *slot, const struct shms_keyname *k,
		      const struct shms_layout *l, bool replace);
/*
 * Any named file: from_name in from_fd is moved (move) or linked; other_key: the object's own key
 * may be another, so that a hashed name needs its sidecar. inode: the file's. Where k names that
 * very inode already: success (and a moved name is removed). Besides the above, of a link: -ENOENT,
 * -ESTALE: from_name is gone; -EAGAIN: it means another file than inode.
 */
struct shms_publish_from {
	int dir_fd;
	const char *name;
	uint64_t inode;
	uint64_t bytes; /* blocks */
	bool move;
	bool other_key;
	bool shared; /* the inode has, or may have, other names */
	bool alias;  /* another name of ours: from_name in objects/ */
};
int shms_publish_named(struct shmstore *s, const struct shms_publish_from *from,
		       const struct shms_keyname *k, const struct shms_layout *l, bool replace);

#endif
