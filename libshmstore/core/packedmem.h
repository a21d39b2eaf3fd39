/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packedmem.h: the memory of a store's segments, under the same limits as that of its files.
 *
 * Memory is granted before a segment grows (room.h), never for an object: a put into memory that is
 * there charges nothing, as one into a recycled file. Segment memory without an object is the
 * store's pool (docs/segments.md "Memory"): it has a bound and an age, and goes when memory is
 * wanted.
 */
#ifndef SHMS_PACKEDMEM_H
#define SHMS_PACKEDMEM_H

#include <stdbool.h>
#include <stdint.h>

#include "pack.h"

struct shmstore;

/* store.names is held exclusively, but for pool. */
struct shms_packedmem {
	uint64_t max;          /* bound of the pool, bytes: a part of the partition */
	_Atomic uint64_t pool; /* what of it the ledger has */
	uint32_t n_calls;      /* since the pool was looked at, */
	uint64_t freed;        /* and bytes of objects that were deleted */
	bool tight;            /* what the pack was told last */
	uint64_t looked_ms;    /* when the partition was asked for room, */
	bool scarce;           /* and what it said */
	uint64_t began_ms;     /* of a time in which the pool was never smaller than least */
	uint64_t least;
};

void shms_packedmem_init(struct shmstore *s);
#define SHMS_PACKEDMEM_CALLS 64u /* of that many one looks at the pool */

/* Counts a call that put, took or dropped a packed object. True: unless somebody wants memory,
 * nothing has to be done after it. */
static inline bool shms_packedmem_quiet(struct shms_packedmem *m)
{
	return ++m->n_calls < SHMS_PACKEDMEM_CALLS && m->freed <= m->max && !m->tight && !m->scarce;
}
/* Does it. */
void shms_packedmem_tend(struct shmstore *s, struct shms_pack *pack, uint64_t now_ms);
/* Tells the daemon's words what went back to the kernel. */
void shms_packedmem_gave(struct shmstore *s, struct shms_pack *pack);
/* Gives memory of segments back that no object needs. Returns bytes. No
 * lock of the pack is held. */
uint64_t shms_packedmem_trim(struct shmstore *s);
/* Would a trim give more than the last one left? */
bool shms_packedmem_any(struct shmstore *s);

#endif
