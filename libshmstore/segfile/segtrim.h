/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segtrim.h: gives memory of free extents back to the kernel. The caller has the lock of byte 0:
 * the owner, or a process that recovers an orphan.
 */
#ifndef SHMS_SEGTRIM_H
#define SHMS_SEGTRIM_H

#include <stdint.h>

#include "segalloc.h"

/*
 * Punches free extents, neighbours together, as far as they fill whole units of granule bytes (a
 * multiple of the page). backed: the owner's bit for each slot, cleared where the extent lost
 * memory; NULL: there are no such bits. Returns the bytes given back, as the kernel counts them.
 */
uint64_t shms_segtrim(const struct shms_segalloc *a, int fd, uint64_t granule, uint8_t *backed);

#endif
