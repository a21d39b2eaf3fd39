/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packdemote.h: a store's packed objects leave memory for the tier, and its segments'
 * memory goes back to the kernel.
 *
 * Only the store's own process can do that, since it alone may give up the
 * store's names (segments.md).
 */
#ifndef SHMS_PACKDEMOTE_H
#define SHMS_PACKDEMOTE_H

#include <stdint.h>

struct shmstore;
struct shms_tier;

struct shms_packdemoted {
	uint64_t n, bytes; /* objects, and the memory that they took */
};

/*
 * Demotes until so many bytes are free, or most objects went, or nothing is left that may
 * go: what nobody else has, and nobody looks at; what was not used lately first
 * (packvictim.c). For the owner's handle of a store that takes part in the tier, whose
 * process it is. No lock of the store is held.
 */
struct shms_packdemoted shms_packdemote(struct shmstore *s, struct shms_tier *t, uint64_t bytes,
					uint64_t most);

#endif
