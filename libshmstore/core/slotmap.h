/* SPDX-License-Identifier: Apache-2.0 */
/* slotmap.h: the mapping of a taken slot's file (recycle.h), and who has it. The taker's own: no lock is held. */
#ifndef SHMS_SLOTMAP_H
#define SHMS_SLOTMAP_H

#include <stdbool.h>

struct shmstore;
struct shms_slot;

/* slot->map is there, and can be written to. false: it cannot be had. */
bool shms_slotmap_ready(const struct shmstore *s, struct shms_slot *slot);
/* The mapping, capacity bytes, is the caller's from here on: it outlives the slot. Unmapped, or given back by the next. */
void *shms_slotmap_lend(struct shms_slot *slot);
/*
 * The slot has the mapping again, at an address that nobody was told: who still has the old one meets nothing there. 0; -ENOMEM: it is the
 * caller's still.
 */
int shms_slotmap_return(struct shms_slot *slot, void *map);

#endif
