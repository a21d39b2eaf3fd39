/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packalias.h: further keys of an object. An alias is a slot of the store's own small segments,
 * with the key, whose bytes say which slot has the object (docs/segments.md "More than one key").
 * All of a store's keys of one object share the one name bit of its slot.
 *
 * The pack's lock is held.
 */
#ifndef SHMS_PACKALIAS_H
#define SHMS_PACKALIAS_H

#include "packsegs.h"

/* The one buffer of an alias. */
struct shms_packalias_bytes {
	uint8_t segment[16]; /* uuid */
	uint32_t slot, generation;
};
_Static_assert(sizeof(struct shms_packalias_bytes) == 24, "an alias");

void shms_packalias_deinit(struct shms_pack *p);
/* Where the object is that the key of that place means: there, or where the alias says. */
struct shms_packplace shms_packalias_object(const struct shms_pack *p, struct shms_packplace place);
/* Has the object further keys? Does the store have it by its own key, if it has it at all? */
bool shms_packalias_is_aliased(const struct shms_pack *p, struct shms_packplace object);
bool shms_packalias_is_native(const struct shms_pack *p, struct shms_packplace object);
/*
 * Makes an alias of the object, with its own slot named, but without an entry in the
 * index. native: the store has the object by its own key. p->grow says what that may
 * take. 0; -ENOSPC, -ENOMEM, ...
 */
int shms_packalias_make(struct shms_pack *p, const void *key, size_t key_size,
			struct shms_packplace object, uint32_t generation, bool native,
			uint64_t now_ms, struct shms_packplace *ret);
/* Takes it back: the object did not become the store's. */
void shms_packalias_unmake(struct shms_pack *p, struct shms_packplace place, uint64_t now_ms);
/* An alias that a kept store finds again is one, or is given up: the last process was killed before
 * the object was the store's, or after. */
int shms_packalias_reopen(struct shms_pack *p, struct shms_packplace place,
			  const struct shms_segpacked *o);
/*
 * A key of that place goes. The object stays by its other keys, if it has any; else its name goes,
 * and then the alias, so that an alias without its object is one that nobody misses. Returns the
 * bytes that are the store's no more.
 */
uint64_t shms_packalias_unname(struct shms_pack *p, struct shms_packplace place, uint64_t now_ms);
/* The first step of giving all up: objects that have aliases lose the store's name, in all
 * segments, before any alias goes. */
void shms_packalias_forget_objects(struct shms_pack *p, uint64_t now_ms);

#endif
