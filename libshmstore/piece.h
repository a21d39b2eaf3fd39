/* SPDX-License-Identifier: Apache-2.0 */
/*
 * piece.h: the planes of one piece (planes.h) to zstd frames, each of its parts (a plane, or a plane of bits) in the cheapest way: one that is
 * always the same and one that is noise need no search. Pure.
 */
#ifndef SHMS_PIECE_H
#define SHMS_PIECE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zstd.h>

#include "planes.h"

#define SHMS_PIECE_PARTS (SHMS_PLANES * 9u) /* a plane, and its eight planes of bits */

/* What was seen of the pieces before, of the same frame. Begin with zeros. */
struct shms_piece_seen {
	unsigned n_pieces;
	bool noise[SHMS_PIECE_PARTS]; /* zstd found nothing in it */
};

struct shms_piece {
	struct shms_planes kind;
	const unsigned char *planes; /* with one more byte: which of them are of bits */
	size_t size;                 /* of the planes, without that byte */
	const uint8_t *vary;         /* as shms_planes_to_bits() returned them */
	int level;
};

/* Returns the bytes in out; 0: they do not fit into room. */
size_t shms_piece_pack(const struct shms_piece *p, struct shms_piece_seen *seen, ZSTD_CCtx *zstd, void *out,
		       size_t room);
/* size bytes from what is at in. Returns how many bytes of n_in these were; 0: damaged. */
size_t shms_piece_unpack(ZSTD_DCtx *zstd, const void *in, size_t n_in, void *out, size_t size);

#endif
