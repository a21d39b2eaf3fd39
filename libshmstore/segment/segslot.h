/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segslot.h: what the owner does with a slot, and how a holder lets go of one (docs/segments.md "Who may do what"). What takes hold of one is
 * in segshare.h; what the dead held, in segrecover.h.
 *
 * Each of these is a short row of single accesses, in an order that may end at any of them by SIGKILL. A store's threads take its lock around
 * them. What a store has in a slot (a name, views, pins) it counts privately; the shared words have one bit for all its names there, one for
 * all its views.
 */
#ifndef SHMS_SEGSLOT_H
#define SHMS_SEGSLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "segment.h"

/*
 * Owner: takes a slot that it knows as free, to write an object there. *ret_generation: the object's. Then it writes bytes and description,
 * then publishes, under a name of its own, or gives it up. 0; -EBADMSG: the slot is not free, so somebody scribbles: it is to be left alone.
 */
int shms_segslot_begin(const struct shms_segslot *slot, uint32_t *ret_generation);
void shms_segslot_publish(const struct shms_segslot *slot, uint32_t generation);
void shms_segslot_abandon(const struct shms_segslot *slot, uint32_t generation);
/*
 * Owner: takes the slot back, if nobody has the object any more, by name, view or lease. now: segnow_of_ms(). True: it is FREE, and the
 * owner's. False: it is in use, or was never an object; who leaves it last gives a hint.
 */
bool shms_segslot_held(const struct shms_segslot *slot); /* does any holder's bit stand, at each word's time? */
bool shms_segslot_free(const struct shms_segslot *slot, uint32_t now);

/* What of its own a holder's store has in the slot when its name goes. */
enum shms_segviews {
	SHMS_SEGVIEWS_NONE,
	SHMS_SEGVIEWS_LIVE,  /* views, which the name's bit covered; forked children's count */
	SHMS_SEGVIEWS_MARKED /* the view bit stands already */
};
/*
 * Holder: its name goes. True: no bit is left in its word, perhaps in none; it then gives the hint (segment.h), or, as the owner, tries to take
 * the slot back.
 */
bool shms_segslot_drop(const struct shms_segslot *slot, unsigned holder, enum shms_segviews views);
/* Holder: its last view goes, after its name went, or of a pinned object. As before. */
bool shms_segslot_unview(const struct shms_segslot *slot, unsigned holder);

#endif
