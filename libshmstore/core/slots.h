/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots.h: the slots of recycle.h, one step each. In all of these the pool's lock is held; the sums
 * of the pool and the ledger's are changed here alone.
 */
#ifndef SHMS_SLOTS_H
#define SHMS_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "recycle.h"

/*
 * Opens an object's file for writing. It has no name that anybody else looks at. A descriptor,
 * -EPERM (it was handed to another user), -ETIMEDOUT (somebody is just handing it over), -errno.
 */
int shms_slot_open(const struct shmstore *s, int dir_fd, const char *name);
/* The unit in which a file of that capacity gives back slack. */
uint64_t shms_slack_unit(const struct shmstore *s, uint64_t capacity);
/* Closes and unmaps what the slot has: it is FREE. Its file stays. */
void shms_slot_free(struct shms_recycle *r, struct shms_slot *slot);
/* The slot is in this state from now on. Not for POOLED. */
void shms_slot_state(struct shms_slot *slot, enum shms_slot_state state);
/* Into the pool, and out of it. handed: others may link it. */
void shms_slot_pool(struct shmstore *s, struct shms_slot *slot, bool handed);
void shms_slot_unpool(struct shmstore *s, struct shms_slot *slot, enum shms_slot_state state);
/* A pooled file is removed. */
void shms_slot_drop(struct shmstore *s, struct shms_slot *slot);
/* Opens a cold file again. False: it was taken meanwhile, or cannot be opened; the slot is free. */
bool shms_slot_warm(struct shmstore *s, struct shms_slot *slot);
/* The slot that came into this state first; NULL: none is in it. */
struct shms_slot *shms_slot_oldest(struct shms_recycle *r, enum shms_slot_state state);
/* The slot leaves its published object alone. Returns what the object gave back. */
uint64_t shms_slot_unpublish(struct shmstore *s, struct shms_slot *slot);
/* A slot to use: a free one, else that of the object published longest ago, else that of the oldest
 * pooled file. NULL: all are being written. */
struct shms_slot *shms_slot_claim(struct shmstore *s);

/* The mapping of a taken slot's file: the taker's own, no lock is held. */
/* slot->map is there, and can be written to. false: it cannot be had. */
bool shms_slotmap_ready(const struct shmstore *s, struct shms_slot *slot);
/* The mapping, capacity bytes, is the caller's from here on: it outlives the slot. Unmapped,
 * or given back by the next. */
void *shms_slotmap_lend(struct shms_slot *slot);
/*
 * The slot has the mapping again, at an address that nobody was told: who still has the old one
 * meets nothing there. 0; -ENOMEM: it is the caller's still.
 */
int shms_slotmap_return(struct shms_slot *slot, void *map);

#endif
