/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segrecover.h: what a holder that is dead, or closes, held in a segment, is given back (docs/segments.md "When somebody is killed").
 *
 * The caller has the lock of the holder's byte, or is the holder itself at its end: nobody else touches the holder's bits. Who is killed in
 * between has left a part of it done, and the next one begins anew.
 */
#ifndef SHMS_SEGRECOVER_H
#define SHMS_SEGRECOVER_H

#include <stdbool.h>

#include "segment.h"

/*
 * Gives back all bits of holder in all slots; of a kept store, its view bits, and a name that it was just about to set on another object than
 * it meant. For the owner (holder 0) puts that were not finished and looks that were not ended go back as well. Hints are given.
 */
void shms_segment_recover(const struct shms_segment *g, unsigned holder, bool kept);

#endif
