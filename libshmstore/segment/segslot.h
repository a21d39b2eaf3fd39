/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segslot.h: the owner's changes of a slot, and how a holder lets go of one (docs/segments.md "Who
 * may do what"). segshare.h has the functions that take hold of a slot; segrecover.h gives back
 * what the dead had.
 *
 * Each function is a short row of single accesses, which SIGKILL may end after any of them. A
 * store's threads take its lock around them. A store counts privately what it has in a slot (a
 * name, views, pins); the shared words have one bit for all its names there, and one for all its
 * views.
 */
#ifndef SHMS_SEGSLOT_H
#define SHMS_SEGSLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "segment.h"

/*
 * Owner: takes a slot that it knows as free, to write an object there. *ret_generation: the
 * object's. The owner then writes bytes and description, and publishes the object under its own
 * name, or abandons it. 0; -EBADMSG: the slot is not free, which is damage: it is not used any
 * more.
 */
int shms_segslot_begin(const struct shms_segslot *slot, uint32_t *ret_generation);
void shms_segslot_publish(const struct shms_segslot *slot, uint32_t generation);
void shms_segslot_abandon(const struct shms_segslot *slot, uint32_t generation);
/*
 * Owner: takes the slot back, if no holder has the object any more, by name, view or lease. now:
 * segnow_of_ms(). True: it is FREE, and the owner's. False: it is in use, or never had an object;
 * the holder that leaves it last sets a hint.
 */
/* does any holder's bit stand, at each word's time? */
bool shms_segslot_held(const struct shms_segslot *slot);
bool shms_segslot_free(const struct shms_segslot *slot, uint32_t now);
/*
 * Any process: takes the slot's leases away, if the last one has ended. Returns how
 * many these were. A ticket's receiver that comes too late finds none, as it would
 * find that its ticket has ended.
 */
unsigned shms_segslot_expire(const struct shms_segslot *slot, uint32_t now);

/* Views that a holder's store still has in the slot when its name goes. */
enum shms_segviews {
	SHMS_SEGVIEWS_NONE,
	SHMS_SEGVIEWS_LIVE,  /* views, which the name's bit covered; forked children's count */
	SHMS_SEGVIEWS_MARKED /* the view bit stands already */
};
/*
 * Holder: its name goes. True: its word has no bit left, so that perhaps no word has. The holder
 * then sets the hint (segment.h), or, as the owner, tries to take the slot back.
 */
bool shms_segslot_drop(const struct shms_segslot *slot, unsigned holder, enum shms_segviews views);
/* Holder: the last view goes, after the name went, or of a pinned object. Returns as before. */
bool shms_segslot_unview(const struct shms_segslot *slot, unsigned holder);

#endif
