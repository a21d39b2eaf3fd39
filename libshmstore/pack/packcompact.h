/* SPDX-License-Identifier: Apache-2.0 */
/* packcompact.h: moves small objects together, so that the memory between them goes back to the kernel. */
#ifndef SHMS_PACKCOMPACT_H
#define SHMS_PACKCOMPACT_H

#include "packsegs.h"

/*
 * Moves up to most small objects out of the own segment from, emptiest pages first, into free slots of the own segment
 * to that have memory, fullest pages first; where both are the same, until the two meet. Both were trimmed before, and
 * from is to be trimmed after it. The pack's lock is held. Returns how many were moved.
 */
uint32_t shms_packcompact(struct shms_pack *p, uint32_t from, uint32_t to, uint64_t now_ms, uint32_t most);

#endif
