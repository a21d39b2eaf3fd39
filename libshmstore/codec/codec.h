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
#include <stdint.h>

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

/*
 * Arrays of 4- or 8-byte words turned into planes of bytes that compress well and fast,
 * and back. Pure.
 */

struct shms_planes {
	unsigned width; /* bytes of a word: 4 or 8 */
	bool delta;     /* the differences of neighbouring words instead of the words */
};

/* size bytes in, as many out; they do not overlap. Words beyond a multiple of eight are copied. */
void shms_planes_split(struct shms_planes p, const void *words, size_t size, void *planes);
void shms_planes_join(struct shms_planes p, const void *planes, size_t size, void *words);

/*
 * tierframe.c: what a processor does with one frame between memory and disk: copies, hashes, packs
 * and unpacks. No I/O on the disk.
 */

/* A thread's contexts and buffers. NULL: out of memory. */
struct shms_tier_tools;
struct shms_tier_tools *shms_tier_tools_new(void);
void shms_tier_tools_free(struct shms_tier_tools *t);

struct shms_tier_work {
	/* in */
	int object_fd;          /* load: -1: only checked */
	uint64_t object_offset; /* of the frame's bytes in it */
	/* store: filled but for the offset; load: as in the header */
	struct shms_tier_frame *frame;
	int level;
	/* store: room for the frame and its padding; load: the same, and it holds what is stored */
	void *bytes;
	void *spare; /* as much again; store of level 0, load of a raw frame: NULL */
	/* out */
	void *at;         /* store: what is to be written, padded: bytes or spare */
	int error;        /* -errno */
	const char *what; /* of error: static text */
};

/* t: NULL where there was no memory for it, which is the error then. */
void shms_tier_pack(struct shms_tier_work *w, struct shms_tier_tools *t);
void shms_tier_unpack(struct shms_tier_work *w, struct shms_tier_tools *t);

#endif
