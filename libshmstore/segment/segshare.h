/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segshare.h: how an object of a slot comes to a second holder: by a lease that is handed off and adopted, or by a pin (docs/segments.md "Who may
 * do what"). Rows of single accesses, as in segslot.h.
 */
#ifndef SHMS_SEGSHARE_H
#define SHMS_SEGSHARE_H

#include <stddef.h>
#include <stdint.h>

#include "segment.h"
#include "segpacked.h"

/* What a ticket says of a slot. */
struct shms_segticket {
	uint32_t slot;
	uint32_t generation;
	uint32_t lease;  /* which bit */
	uint64_t end_ms; /* CLOCK_BOOTTIME */
};

/*
 * A holder that has the object by name, of that generation, promises it to whoever brings the ticket, until end_ms. from: the lease bit to try
 * first; who counts it up makes a used ticket meet another object's lease as late as can be. 0; -EAGAIN: all leases are out; -EINVAL: an end
 * further away than SHMS_SEG_LEASE_MAX_MS; -EBADMSG: the object is not there (somebody scribbles).
 */
int shms_segslot_handoff(const struct shms_segslot *slot, uint32_t generation, unsigned from, uint64_t now_ms,
			 uint64_t end_ms, uint32_t *ret_lease);
/*
 * The ticket's object gets holder's name, and the lease goes. holder: one's own. kept: a kept store. ret: what is in the slot, checked. 0;
 * -ESTALE: the ticket was used, or its lease or object is gone; -EBADMSG: a description that is no object's, or no such slot. A refusal leaves
 * what was. The ticket's end the caller has looked at.
 */
int shms_segment_adopt(const struct shms_segment *g, unsigned holder, bool kept, const struct shms_segticket *ticket,
		       struct shms_segpacked *ret);
/*
 * Holder, with neither name nor view there: a view of the object of that generation, as long as store `from` has it by name, which is looked at
 * once. 0; -ENOENT: it is not there any more.
 */
int shms_segslot_pin(const struct shms_segslot *slot, unsigned holder, unsigned from, uint32_t generation);

/* The last part of a ticket's path: slot, generation, lease, end as 8, 6, 2, 16 hexadecimal digits. */
#define SHMS_SEGTICKET_TEXT 33
void shms_segticket_format(const struct shms_segticket *ticket, char ret_text[SHMS_SEGTICKET_TEXT]);
/* text: SHMS_SEGTICKET_TEXT - 1 digits of n bytes. 0; -EBADMSG: anything else than _format() writes. */
int shms_segticket_parse(const char *text, size_t n, struct shms_segticket *ret);
/* The number of n lower-case hexadecimal digits, 16 at most; false: something else is there. */
bool shms_segticket_digits(const char *text, size_t n, uint64_t *ret);

#endif
