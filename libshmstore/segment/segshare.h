/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segshare.h: brings an object of a slot to a second holder, by a lease that is handed off and
 * adopted, or by a pin (docs/segments.md "Rights of each holder"). The functions are rows of single
 * accesses, as in segslot.h.
 */
#ifndef SHMS_SEGSHARE_H
#define SHMS_SEGSHARE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "segment.h"
#include "segpacked.h"

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
/*
 * Sets holder's name on the ticket's object, and takes the lease. holder: the caller's own. kept:
 * it is a kept store's. ret: the slot's description, checked; NULL: the caller holds the object,
 * and has read it. 0; -ESTALE: the ticket was used, or its lease or object is gone; -EBADMSG: there
 * is no such slot, or its description is no object's.
 * A call that fails changes nothing. The caller has checked the ticket's end.
 */
int shms_segment_adopt(const struct shms_segment *g, unsigned holder, bool kept,
		       const struct shms_segticket *ticket, struct shms_segpacked *ret);
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

#endif
