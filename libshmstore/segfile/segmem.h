/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segmem.h: which pages of a segment's file have memory, and how much more its owner may take.
 *
 * Under limits memory is granted before it is taken. Only the segment's owner takes any, so that it
 * can say beforehand how much a step takes at most. A step that would take more than is granted
 * takes nothing, and says what it needs; the caller comes again when it has that.
 *
 * The caller has one lock around all of it.
 */
#ifndef SHMS_SEGMEM_H
#define SHMS_SEGMEM_H

#include <stdbool.h>
#include <stdint.h>

#include "segalloc.h"

/* Memory that a store's segments take and give back. */
struct shms_seggrow {
	uint64_t may;   /* bytes for one put; UINT64_MAX: nobody counts them */
	uint64_t taken; /* so far, as the kernel counts */
	/* not 0: refused, because the next step takes so many, with what is taken ahead */
	uint64_t wanted;
	uint64_t least;        /* and so many without that */
	bool tight;            /* what is free goes at once */
	_Atomic uint64_t gave; /* bytes given back to the kernel */
};

struct shms_segmem {
	uint64_t *has;  /* a bit for each page: it has memory */
	uint64_t size;  /* of the file */
	uint64_t page;  /* of the host */
	uint64_t unit;  /* the kernel gives so many bytes at a time, at most */
	uint64_t bytes; /* that the file takes */
	bool unsure;    /* pages may have memory whose bit is not set */
};

/* Of the file fd, of which has bits are not known but where it is fresh: then its first used bytes
 * have memory. 0, -ENOMEM, -errno. */
int shms_segmem_init(struct shms_segmem *m, int fd, uint64_t size, uint64_t unit, uint64_t used,
		     bool fresh);
void shms_segmem_deinit(struct shms_segmem *m);

/* True: [from, to) has memory for certain. */
bool shms_segmem_has(const struct shms_segmem *m, uint64_t from, uint64_t to);
/* Bytes that are taken at most if [from, to) gets memory. */
uint64_t shms_segmem_missing(const struct shms_segmem *m, uint64_t from, uint64_t to);
/* May wanted bytes be taken, or at least least? False: it is noted in grow what would be needed.
 * grow NULL: nobody counts. */
bool shms_seggrow_may(struct shms_seggrow *grow, uint64_t wanted, uint64_t least);
/* May so many bytes be taken still? */
bool shms_seggrow_has(const struct shms_seggrow *grow, uint64_t bytes);
/*
 * Takes memory for [from, to), and up to ahead if that may be and can be had. *ret_to: how far. 0;
 * -ENOSPC, also where it may not be; -errno.
 */
int shms_segmem_take(struct shms_segmem *m, struct shms_seggrow *grow, int fd, uint64_t from,
		     uint64_t to, uint64_t ahead, uint64_t *ret_to);
/* [from, to) was written, as far as ok says. */
void shms_segmem_written(struct shms_segmem *m, struct shms_seggrow *grow, int fd, uint64_t from,
			 uint64_t to, bool ok);

/*
 * Gives memory of free extents back to the kernel. The caller has the lock of byte 0:
 * the owner, or a process that recovers an orphan.
 */

struct shms_segtrim {
	const struct shms_segalloc *alloc;
	int fd;
	struct shms_segmem *mem; /* the owner's; NULL: there is none */
};

/*
 * Punches free extents, neighbours together, as far as they fill whole units, and what is behind
 * the last extent. Returns the bytes given back, as the kernel counts them.
 */
uint64_t shms_segtrim(const struct shms_segtrim *t);
/* The same of a segment whose allocator we have not. 0, -ENOMEM. */
int shms_segtrim_free(const struct shms_segment *g, int fd, uint64_t *io_freed);
/* The same of the pages in which that free slot lies. Only with mem. */
uint64_t shms_segtrim_around(const struct shms_segtrim *t, uint32_t slot);

#endif
