/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segsurvey.h: says by a segment's slots what its memory is used for. Needs no owner, and changes
 * nothing.
 */
#ifndef SHMS_SEGSURVEY_H
#define SHMS_SEGSURVEY_H

#include <stdint.h>

#include "segfile.h"

/* Bytes of extents; linked + ghosts + inflight + pool = the segment's memory. */
struct shms_segsurvey {
	uint64_t n_linked, linked_bytes;     /* objects with a name or a lease */
	uint64_t n_ghosts, ghosts_bytes;     /* with views only */
	uint64_t n_inflight, inflight_bytes; /* being put */
	uint64_t pool_bytes;                 /* the rest: books, free extents, what was allocated ahead */
	uint32_t n_leases;                   /* that have not ended */
	uint32_t n_places;                   /* holders */
	uint32_t n_bad;                      /* slots that say what cannot be */
};

/* If the segment changes meanwhile, each slot is reported as it was at one moment. */
void shms_segsurvey(const struct shms_seglook *l, uint64_t now_ms, struct shms_segsurvey *ret);

#endif
