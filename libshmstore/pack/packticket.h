/* SPDX-License-Identifier: Apache-2.0 */
/* packticket.h: the path of a packed object's ticket: the donor's link beneath the partition, and what of the segment is meant. Pure. */
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
/* The link by itself, and its last part in that, which is the file's name. */
const char *shms_packticket_link(const struct shms_packticket *ticket, char ret_link[SHMS_PACK_TICKET]);
/* Where the store's directory ends in path, which is the link's without /segments/ and the name. */
size_t shms_packticket_store(const struct shms_packticket *ticket);

#endif
