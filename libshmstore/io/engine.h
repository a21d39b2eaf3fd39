/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.h: moves whole objects between memory and tier files: frames are read, hashed,
 * compressed and written side by side.
 *
 * An engine is one thread's at a time and starts threads only where it is asked for them. Jobs
 * are taken in order and overlap: a job is over when its done is called, from within this or a
 * later call on the same engine, in the caller's thread; done may begin other jobs.
 * Descriptors and the job stay the caller's and must live until then. io_uring where the kernel
 * lets us, preadv and pwritev elsewhere. Not inherited by fork: in a child an engine can only be
 * freed.
 */
#ifndef SHMS_ENGINE_H
#define SHMS_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "tierformat.h"

struct shms_engine;

struct shms_engine_options {
	unsigned n_threads; /* that compress, decompress and hash; 0: the caller's own */
	bool background;    /* threads run at idle priority */
	bool no_ring;       /* plain calls only (tests; SHMSTORE_TIER_IO=plain does the same) */
};

/* 0, -ENOMEM, -EMFILE */
int shms_engine_new(const struct shms_engine_options *o, struct shms_engine **ret);
void shms_engine_free(struct shms_engine *e); /* NULL is fine; jobs under way are finished first */
const char *shms_engine_io(struct shms_engine *e); /* "io_uring", or "plain" and why, for people */

struct shms_job {
	/* in */
	/* store: read from, at 0; load: written to, at 0; load, -1: the
	 * tier file is only checked */
	int object_fd;
	int tier_fd; /* store: written to, new and empty; load: read from. Both may be O_DIRECT */
	/* store: from shms_tier_header_init(); finished when done. load: parsed */
	struct shms_tier_header *header;
	bool fsync;                         /* store: fsync tier_fd before done */
	void (*done)(struct shms_job *job); /* NULL: shms_engine_drain() is enough */
	void *arg;
	/* out, when done */
	int error;        /* 0, -EBADMSG (load: reason says which frame), -ENOSPC, -EIO, -ENOMEM */
	char reason[128]; /* of error, for people; "" = none */
	/* the engine's */
	void *state;
};

/* Each takes the job (its error may be there at once: done is called all the same). */
void shms_engine_store(struct shms_engine *e, struct shms_job *job);
void shms_engine_load(struct shms_engine *e, struct shms_job *job);
/* until a job more is done; at once where none is under way */
void shms_engine_wait(struct shms_engine *e);
void shms_engine_drain(struct shms_engine *e); /* until every job is done */

#endif
