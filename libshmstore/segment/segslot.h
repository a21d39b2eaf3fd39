/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segslot.h: the steps of the protocol (docs/segments.md "Rights of each holder"): the owner's
 * changes of a slot, how an object comes to a second holder and how a holder lets go of it, and
 * what is given back for the dead.
 *
 * Each function is a short row of single accesses, which SIGKILL may end after any of them. A
 * store's threads take its lock around them. A store counts privately what it has in a slot (a
 * name, views, pins); the shared words have one bit for all its names there, and one for all its
 * views.
 */
#ifndef SHMS_SEGSLOT_H
#define SHMS_SEGSLOT_H

#include <stdbool.h>
#include <stddef.h>
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

/*
 * ---- an object for a second holder, by a lease that is handed off and adopted, or by a pin
 * (docs/segments.md "Rights of each holder")
 */

/* A ticket's description of a slot. */
struct shms_segticket {
	uint32_t slot;
	uint32_t generation;
	uint32_t lease;  /* which bit */
	uint64_t end_ms; /* CLOCK_BOOTTIME */
};

/*
 * A holder, which has the object of that generation by name, leases it until end_ms to the process
 * that brings the ticket. from: the lease bit to try first; a caller that counts it up makes a used
 * ticket meet another object's lease as late as possible. 0; -EAGAIN: all leases are out; -EINVAL:
 * the end is further away than SHMS_SEG_LEASE_MAX_MS; -EBADMSG: the object is not there, which is
 * damage.
 */
int shms_segslot_handoff(const struct shms_segslot *slot, uint32_t generation, unsigned from,
			 uint64_t now_ms, uint64_t end_ms, uint32_t *ret_lease);
/*
 * Is the ticket's lease out? Then its object has been as it is since the handoff. 0; -ESTALE: the
 * ticket was used, or its lease or object is gone; -EBADMSG: there is no such slot.
 */
int shms_segment_stands(const struct shms_segment *g, const struct shms_segticket *ticket);
/*
 * Gives holder, which has no views there, its view bit on the ticket's object, so that this stays
 * as it is, whoever takes the lease, until shms_segslot_unview(). Returns as shms_segment_stands().
 */
int shms_segment_hold(const struct shms_segment *g, unsigned holder,
		      const struct shms_segticket *ticket);
/* Takes the ticket's lease, so that the ticket is used. Returns as shms_segment_stands(). */
int shms_segment_take(const struct shms_segment *g, const struct shms_segticket *ticket);
/*
 * Sets holder's name on the ticket's object, and takes the lease. holder: the caller's own. kept:
 * it is a kept store's. Returns as shms_segment_stands(). A call that fails changes nothing. The
 * caller has checked the ticket's end, and reads the slot's description under a bit of its own.
 */
int shms_segment_adopt(const struct shms_segment *g, unsigned holder, bool kept,
		       const struct shms_segticket *ticket);
/*
 * Gives holder, which has neither name nor view there, a view of the object of that generation, as
 * long as store `from` has it by name; that is looked at once. 0; -ENOENT: it is not there any
 * more.
 */
int shms_segslot_pin(const struct shms_segslot *slot, unsigned holder, unsigned from,
		     uint32_t generation);

/*
 * The last part of a ticket's path: slot, generation, lease and end as 8, 6, 2 and 16 hexadecimal
 * digits.
 */
#define SHMS_SEGTICKET_TEXT 33
void shms_segticket_format(const struct shms_segticket *ticket, char ret_text[SHMS_SEGTICKET_TEXT]);
/*
 * text: n bytes, which must be SHMS_SEGTICKET_TEXT - 1 digits. 0; -EBADMSG: _format() does not
 * write that.
 */
int shms_segticket_parse(const char *text, size_t n, struct shms_segticket *ret);

/*
 * ---- what a dead or closing holder had (docs/segments.md "When somebody is killed")
 *
 * The caller has the lock of the holder's byte, or is the holder itself at its end: no other
 * process touches the holder's bits. A kill in between leaves a part of it done, and the next
 * process begins anew.
 */

/*
 * Gives back all bits of holder in all slots. Of a kept store only the view bits go, and a name
 * that it was just about to set on another object than it meant. For the owner (holder 0),
 * unfinished puts and looks are given back as well. Sets hints.
 */
void shms_segment_recover(const struct shms_segment *g, unsigned holder, bool kept);

#endif
