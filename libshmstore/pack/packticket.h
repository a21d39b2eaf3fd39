/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packticket.h: a packed object's ticket: its path, which is the donor's link beneath the
 * partition, and what of the segment is meant; and the ticket's object for a store that cannot have
 * a place in its segment, or wants it under another key: the bytes are copied while the lease
 * stands, and the lease is taken when the copy is an object of the store.
 */
#ifndef SHMS_PACKTICKET_H
#define SHMS_PACKTICKET_H

#include <stdint.h>

#include "pack.h"
#include "segshare.h"

struct shms_packticket {
	const char *path;   /* the caller's; it begins with the link, beneath the partition */
	size_t link_length; /* in path */
	uint8_t uuid[16];
	struct shms_segticket what;
};

/* path: length bytes, and a NUL. 0; -EBADMSG: that is no packed object's ticket. */
int shms_packticket_parse(const char *path, size_t length, struct shms_packticket *ret);
/* Where the store's directory ends in path, which is the link's without /segments/ and the name. */
size_t shms_packticket_store(const struct shms_packticket *ticket);

struct shms_packcopy {
	uint8_t *extent; /* a copy; malloc() */
	struct shms_segpacked object;
	uint64_t sizes[64]; /* of its buffers */
};

/*
 * 0; -ESTALE: the ticket was used, has ended, or its object is gone; -EBADMSG; -EPERM; -ENOMEM. On
 * success extent is the caller's to free.
 */
int shms_packcopy_read(int root_fd, const struct shms_packticket *ticket, uint64_t now_ms,
		       struct shms_packcopy *ret);
/* Takes the lease, so that the ticket is used. -ESTALE: another process was quicker. */
int shms_packcopy_end(int root_fd, const struct shms_packticket *ticket);

#endif
