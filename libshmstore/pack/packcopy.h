/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packcopy.h: a ticket's object for a store that cannot have a place in its segment, or wants it
 * under another key: the bytes are copied while the lease stands, and the lease is taken when the
 * copy is an object of the store.
 */
#ifndef SHMS_PACKCOPY_H
#define SHMS_PACKCOPY_H

#include <stdint.h>

#include "segpacked.h"

struct shms_packticket;

struct shms_packcopy {
	uint8_t *extent; /* a copy; malloc() */
	struct shms_segpacked object;
	uint64_t sizes[64]; /* of its buffers */
};

/*
 * 0; -ESTALE: the ticket was used, has ended, or its object is gone; -EBADMSG; -EPERM; -ENOMEM. On
 * success extent is the caller's to free.
 */
int shms_packcopy_read(int root_fd, const struct shms_packticket *ticket, uint64_t now_ms, struct shms_packcopy *ret);
/* Takes the lease, so that the ticket is used. -ESTALE: another process was quicker. */
int shms_packcopy_end(int root_fd, const struct shms_packticket *ticket);

#endif
