/* SPDX-License-Identifier: Apache-2.0 */
/* packticket.h: the path of a packed object's ticket: the donor's link beneath the partition, and what of the segment is meant. Pure. */
#ifndef SHMS_PACKTICKET_H
#define SHMS_PACKTICKET_H

#include <stdint.h>

#include "pack.h"
#include "segshare.h"

struct shms_packticket {
	char link[SHMS_PACK_TICKET]; /* beneath the partition */
	uint8_t uuid[16];
	struct shms_segticket what;
};

/* 0; -EBADMSG: that is no packed object's ticket. */
int shms_packticket_parse(const char *path, struct shms_packticket *ret);

#endif
