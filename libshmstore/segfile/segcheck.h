/* SPDX-License-Identifier: Apache-2.0 */
/* segcheck.h: the objects of a segment against their checksums, by a process without a place. */
#ifndef SHMS_SEGCHECK_H
#define SHMS_SEGCHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "seglook.h"

struct shms_segcheck {
	void *chunk; /* room to read into */
	size_t chunk_size;
	uint64_t bytes; /* that were read */
	/* the objects would be more than the segment: extents overlap, and the rest was not read */
	bool overlaps;
	/* An object that does not match, or cannot be read, by its key. Other than 0 ends
	 * the check, and is returned. */
	int (*damaged)(const void *key, size_t key_size, void *arg);
	void *arg;
};

/* An object that goes meanwhile is left out. 0; what damaged() returned; -ENOMEM. */
int shms_segcheck(const struct shms_seglook *l, struct shms_segcheck *c);

#endif
