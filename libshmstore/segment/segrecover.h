/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segrecover.h: gives back what a dead or closing holder had in a segment (docs/segments.md "When
 * somebody is killed").
 *
 * The caller has the lock of the holder's byte, or is the holder itself at its end: no other
 * process touches the holder's bits. A kill in between leaves a part of it done, and the next
 * process begins anew.
 */
#ifndef SHMS_SEGRECOVER_H
#define SHMS_SEGRECOVER_H

#include <stdbool.h>

#include "segment.h"

/*
 * Gives back all bits of holder in all slots. Of a kept store only the view bits go, and a name
 * that it was just about to set on another object than it meant. For the owner (holder 0),
 * unfinished puts and looks are given back as well. Sets hints.
 */
void shms_segment_recover(const struct shms_segment *g, unsigned holder, bool kept);
/*
 * After that, of a kept store that is to be taken apart: its objects lose the name, and its aliases
 * keep theirs. An alias without its object means nothing, but an object without its alias has its
 * own key again, which may have been deleted.
 */
void shms_segment_forget_objects(const struct shms_segment *g, unsigned holder);
/* Has the holder an alias there? Only owners have any. */
bool shms_segment_has_alias(const struct shms_segment *g, unsigned holder);

#endif
