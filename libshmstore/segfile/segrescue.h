/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segrescue.h: what is done about the dead in a segment's file, by anybody of its user: gc, or a store that wants a place
 * (docs/segments.md "When somebody is killed"). All of it may be interrupted anywhere, and done twice.
 */
#ifndef SHMS_SEGRESCUE_H
#define SHMS_SEGRESCUE_H

#include <stdbool.h>
#include <stdint.h>

#include "segfile.h"

/*
 * The byte of holder is locked by the caller. What the holder had is given back, and its place is free (the owner's: an orphan's). gone false: the
 * store is kept, and so are its names and its place.
 */
void shms_segrescue_locked(const struct shms_segment *g, unsigned holder, bool gone);

struct shms_segrescued {
	uint32_t n_dead; /* places that were given back */
	uint32_t n_alive;
	bool orphan;    /* there is no owner any more */
	uint64_t freed; /* bytes of memory that went back to the kernel */
};

/*
 * Recovers every dead holder of the segment l, which was opened for writing. gone: a kept store whose directory goes, NULL: none. An orphan's free
 * memory goes back to the kernel. 0; -EBUSY: gone's place is locked still, by a child that inherited views; -ENOMEM.
 */
int shms_segrescue(struct shms_seglook *l, const uint8_t gone[16], uint64_t now_ms, struct shms_segrescued *ret);
/*
 * The same for segment name of the dead store whose segments/ dirfd is; then the link goes. 0; 1: it stays, as a lease stands in the segment or a
 * child of the dead store lives; -ENOENT; -EBADMSG: it is no segment; -ENOTSUP: of a later version.
 */
int shms_segrescue_unlink(int dirfd, const char *name, const uint8_t gone[16], uint64_t now_ms,
			  struct shms_segrescued *ret);

#endif
