/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zframe.h: zstd frames written by hand, of what needs no search: bytes as they are, and one byte many times (RFC 8878, 3.1.1.2: raw and RLE
 * blocks). Any zstd reads them. Pure.
 */
#ifndef SHMS_ZFRAME_H
#define SHMS_ZFRAME_H

#include <stdbool.h>
#include <stddef.h>

struct shms_zframe {
	unsigned char *out;
	size_t room;
	size_t used;    /* of out; more than room: it did not fit, and nothing was written behind it */
	size_t content; /* bytes that the frame stands for */
	size_t last;    /* where in out the last block begins; 0: there is none */
};

void shms_zframe_begin(struct shms_zframe *f, void *out, size_t room);
void shms_zframe_raw(struct shms_zframe *f, const void *bytes, size_t size);
void shms_zframe_repeat(struct shms_zframe *f, unsigned char byte, size_t size);
/* Bytes of the frame; 0: it has no content, or did not fit. */
size_t shms_zframe_end(struct shms_zframe *f);

#endif
