/* SPDX-License-Identifier: Apache-2.0 */
/* segtrim.h: memory of free extents goes back to the kernel. For who has the lock of byte 0: the owner, or who recovers an orphan. */
#ifndef SHMS_SEGTRIM_H
#define SHMS_SEGTRIM_H

#include <stdint.h>

#include "segalloc.h"

/*
 * Punches what lies in free extents, neighbours together, as far as it is whole units of granule bytes (a multiple of the page). backed: the owner's
 * bit for each slot, cleared where an extent lost memory; NULL: nobody asks. Returns bytes given back, as the kernel counts them.
 */
uint64_t shms_segtrim(const struct shms_segalloc *a, int fd, uint64_t granule, uint8_t *backed);

#endif
