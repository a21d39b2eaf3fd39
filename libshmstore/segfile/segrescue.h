/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segrescue.h: recovers the dead in a segment's file. Any process of the segment's user may do it:
 * gc, or a store that wants a place (docs/segments.md "When somebody is killed"). It may be
 * interrupted anywhere, and done twice.
 */
#ifndef SHMS_SEGRESCUE_H
#define SHMS_SEGRESCUE_H

#include <stdbool.h>
#include <stdint.h>

#include "seglook.h"

/*
 * Gives back what the holder had, and frees its place (an owner's place becomes an orphan's). The
 * caller has locked the holder's byte. gone false: the store is kept, and so are its names and its
 * place.
 */
void shms_segrescue_locked(const struct shms_segment *g, unsigned holder, bool gone);

struct shms_segrescued {
	uint32_t n_leases; /* that had ended, and went: of shms_segrescue_unlink() */
	uint64_t freed;    /* bytes of memory that went back to the kernel */
};

/*
 * Recovers every dead holder of the segment l, which was opened for writing. gone: a kept store
 * whose directory is being removed, or NULL. Where the owner is dead, free memory goes back to the
 * kernel. 0; -EBUSY: gone's place is still locked by a child that inherited views; -ENOMEM.
 */
int shms_segrescue(struct shms_seglook *l, const uint8_t gone[16], uint64_t now_ms,
		   struct shms_segrescued *ret);
/* The same of segment name of dirfd, as far as it can be had. Returns the bytes freed. */
uint64_t shms_segrescue_name(int dirfd, const char *name, uint64_t now_ms);
/* Takes ended leases of all objects in the segment l, which was opened for
 * writing. Returns how many. */
uint32_t shms_segrescue_leases(struct shms_seglook *l, uint64_t now_ms);
/*
 * Does what shms_segrescue() does for segment name of a dead store, whose segments/ is
 * dirfd; then removes the link.
 * Of another user's segment (we are root) the places are only told to be given up: a process of the
 * user recovers them. 0; 1: the link stays, because a lease is out in the segment, or a child of
 * the dead store lives; -ENOENT; -EBADMSG: it is no segment; -ENOTSUP: it is of a later version.
 * end_leases: the link goes all the same, and tickets that name it are stale.
 */
int shms_segrescue_unlink(int dirfd, const char *name, const uint8_t gone[16], uint64_t now_ms,
			  bool end_leases, struct shms_segrescued *ret);

#endif
