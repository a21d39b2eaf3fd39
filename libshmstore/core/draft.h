/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft.h: memory of the partition in which a buffer is made before it is an object
 * (shmstore_alloc()). A put of that buffer gives the file a name instead of copying it.
 */
#ifndef SHMS_DRAFT_H
#define SHMS_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

#include "format.h"

/* bytes before the buffer: the object's header, when there is one */
#define SHMS_DRAFT_HEAD SHMS_FORMAT_PAGE

struct shmstore;

/* Of a store. */
struct shms_drafts {
	uint64_t kept;     /* bytes of freed drafts that wait for the next */
	uint64_t keep_max; /* bytes */
	uint64_t n;        /* drafts, kept ones too */
	bool closed;       /* none is made, and none is in the books, from here on */
};

/* A draft on its way to being an object. */
struct shms_draft_claim {
	struct shms_draft *d;
	/* of the file, which nobody writes to any more but by this; shms_draft_end() closes
	 * it unless it was taken (-1) */
	int fd;
	uint64_t size; /* the buffer's bytes */
};

/* Is that the whole buffer of a draft of the store that may still be
 * published? A look, no promise. */
bool shms_draft_is(struct shmstore *s, const void *buffer, uint64_t size);
/*
 * From here on the file has the bytes that the buffer has now: what is written to the buffer later
 * stays private to the process, at the same address. Once for each draft. false: there is none, or
 * it cannot be done; the buffer is memory as any other.
 */
bool shms_draft_claim(struct shmstore *s, const void *buffer, uint64_t size,
		      struct shms_draft_claim *ret);
/* Cuts the file to size bytes: what a larger draft had behind its buffer goes. 0, -errno. */
int shms_draft_cut(const struct shms_draft_claim *c, uint64_t size);
/* published: the file is an object's, and in the store's books as such. */
void shms_draft_end(struct shms_draft_claim *c, bool published);

/* Gives back what is kept: all, or what is older than the bound. Bytes. */
uint64_t shms_draft_trim(struct shmstore *s, bool all);
bool shms_draft_any_kept(struct shmstore *s);
/* The handle goes: memory that is in use stays with the process. */
void shms_draft_close(struct shmstore *s);

#endif
