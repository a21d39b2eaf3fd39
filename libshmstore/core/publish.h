/* SPDX-License-Identifier: Apache-2.0 */
/* publish.h: gives a finished file its name in objects/: the one instant at
 * which an object comes to be. */
#ifndef SHMS_PUBLISH_H
#define SHMS_PUBLISH_H

#include <stdbool.h>
#include <stdint.h>

#include "format.h"
#include "keyname.h"
#include "recycle.h"

struct shmstore;

/* Flags of put and create. */
#define SHMS_PUT_FLAGS \
	(SHMSTORE_REPLACE | SHMSTORE_CHECKSUM | SHMSTORE_WAIT | SHMSTORE_PIN | SHMSTORE_NO_EVICT)

/* All: 0, -EEXIST without replace, -errno. Success books the object. */
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
