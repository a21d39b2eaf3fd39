/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segtrim.h: gives memory of free extents back to the kernel. The caller has the lock of byte 0:
 * the owner, or a process that recovers an orphan.
 */
#ifndef SHMS_SEGTRIM_H
#define SHMS_SEGTRIM_H

#include <stdint.h>

#include "segalloc.h"
#include "segmem.h"

struct shms_segtrim {
	const struct shms_segalloc *alloc;
	int fd;
	/* the owner's bit for each slot, cleared where the extent lost
	 * memory; NULL: there are none */
	uint8_t *backed;
	struct shms_segmem *mem; /* with backed */
};

/*
 * Punches free extents, neighbours together, as far as they fill whole units, and what is behind
 * the last extent. Returns the bytes given back, as the kernel counts them.
 */
uint64_t shms_segtrim(const struct shms_segtrim *t);
/* The same of a segment whose allocator we have not. 0, -ENOMEM. */
int shms_segtrim_free(const struct shms_segment *g, int fd, uint64_t *io_freed);
/* The same of the pages in which that free slot lies. Only with mem. */
uint64_t shms_segtrim_around(const struct shms_segtrim *t, uint32_t slot);

#endif
