/* SPDX-License-Identifier: Apache-2.0 */
/* tierframe.h: what a processor does with one frame between memory and disk: copies, hashes, packs
 * and unpacks. No I/O on the disk. */
#ifndef SHMS_TIERFRAME_H
#define SHMS_TIERFRAME_H

#include <stdint.h>

#include "tierformat.h"

/* A thread's contexts and buffers. NULL: out of memory. */
struct shms_tier_tools;
struct shms_tier_tools *shms_tier_tools_new(void);
void shms_tier_tools_free(struct shms_tier_tools *t);

struct shms_tier_work {
	/* in */
	int object_fd;          /* load: -1: only checked */
	uint64_t object_offset; /* of the frame's bytes in it */
	/* store: filled but for the offset; load: as in the header */
	struct shms_tier_frame *frame;
	int level;
	/* store: room for the frame and its padding; load: the same, and it holds what is stored */
	void *bytes;
	void *spare; /* as much again; store of level 0, load of a raw frame: NULL */
	/* out */
	void *at;         /* store: what is to be written, padded: bytes or spare */
	int error;        /* -errno */
	const char *what; /* of error: static text */
};

/* t: NULL where there was no memory for it, which is the error then. */
void shms_tier_pack(struct shms_tier_work *w, struct shms_tier_tools *t);
void shms_tier_unpack(struct shms_tier_work *w, struct shms_tier_tools *t);

#endif
