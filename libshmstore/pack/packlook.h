/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packlook.h: a store's packed objects as seen from its directory, by any process of its user, with
 * or without the store's own handle. Nothing is written, and nobody is waited for: an object that
 * changes while it is read is read again, and left out if it has gone.
 */
#ifndef SHMS_PACKLOOK_H
#define SHMS_PACKLOOK_H

#include <stddef.h>
#include <stdint.h>

#include "seglook.h"
#include "segpacked.h"

/* How many stores have the slot's object by name, and leases of it that have not ended. */
uint64_t shms_packlook_links(const struct shms_segslot *slot, uint64_t state);

struct shms_packlook {
	const void *key; /* a copy */
	size_t key_size;
	struct shms_segpacked object;
	const struct shms_segment *segment;
	uint64_t inode;      /* the segment's */
	uid_t uid;           /* whose the segment is */
	uint64_t n_links;    /* names in stores, and leases */
	const uint8_t *copy; /* of the extent, where it was asked for; else NULL */
	uint32_t slot, generation;
	int error;        /* not 0: a segment that cannot be read, of which only file is told */
	const char *file; /* its name */
};

/*
 * Calls fn for each object that the store of that uuid has in the segments of dir_fd,
 * until fn returns another value than 0, which is returned. All that fn is given is valid during
 * the call. key: only objects of that key, with a copy of their extents; NULL: all of them.
 * Segments that are damaged are left out; of one that may not be read (-EPERM: another user's;
 * -EACCES) fn is told, and the look goes on. 0, -ENOMEM, -EMFILE.
 */
int shms_packlook(int dir_fd, const uint8_t store[16], const void *key, size_t key_size,
		  int (*fn)(const struct shms_packlook *object, void *arg), void *arg);
/* Tells fn only of the segments of dir_fd that may not be read, as shms_packlook() does. */
int shms_packlook_refused(int dir_fd, int (*fn)(const struct shms_packlook *object, void *arg),
			  void *arg);

#endif
