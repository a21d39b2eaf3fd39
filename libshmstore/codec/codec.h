/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec.h: one frame to fewer bytes and back, piece by piece, so that what reads, hashes
 * and writes the pieces finds them in the cache. Pure; one context per thread, what it
 * needs made when first needed.
 */
#ifndef SHMS_CODEC_H
#define SHMS_CODEC_H

#include <stdbool.h>
#include <stddef.h>

#include "tierformat.h"

struct shms_codec_context;

#define SHMS_CODEC_SAMPLE  65536u /* bytes that are looked at before a frame is compressed */
#define SHMS_CODEC_SAMPLES 4u     /* pieces of it */
/* bytes that planes are made of: fits a processor's own cache, with what becomes of it */
#define SHMS_CODEC_PIECE   ((size_t)262144)

struct shms_codec_context *shms_codec_new(void); /* NULL: out of memory */
void shms_codec_free(struct shms_codec_context *c);
/* Where in a frame of size bytes its i-th sample lies. Returns its bytes; 0: there are no more. */
size_t shms_codec_sample_at(size_t size, unsigned i, size_t *ret_offset);
/* How a frame of size bytes should be stored, from its samples, one after the other. level 0: raw,
 * as all that is not worth it. */
enum shms_codec shms_codec_choose(struct shms_codec_context *c, const void *samples, size_t size,
				  int level);

/* One frame on its way; all but used and packed is the caller's. */
struct shms_codec_packing {
	enum shms_codec codec;
	int level;
	size_t size;   /* of the frame */
	void *out;     /* room for size bytes */
	size_t used;   /* of out; begin with 0 */
	size_t packed; /* bytes of the frame that are in out; begin with 0 */
};
/* How many bytes of a frame of size bytes a codec takes at once. */
size_t shms_codec_step(enum shms_codec codec, size_t size);
/*
 * The next bytes of the frame: a step of them, or what is left of it. False: it does not
 * shrink by 5 %, or takes no block of the disk less: store it raw. True with packed == size:
 * used bytes are to be stored.
 */
bool shms_codec_pack(struct shms_codec_context *c, struct shms_codec_packing *p, const void *bytes,
		     size_t size);

/* And on its way back. */
struct shms_codec_unpacking {
	enum shms_codec codec;
	const void *stored;
	size_t size; /* of stored */
	size_t used; /* of it; begin with 0 */
	void *out;   /* room for original bytes */
	size_t original;
	size_t unpacked; /* bytes in out; begin with 0; all there when == original */
};
/* Some more bytes. 0, -EBADMSG (also where stored has more to give), -ENOMEM. */
int shms_codec_unpack(struct shms_codec_context *c, struct shms_codec_unpacking *u);

#endif
