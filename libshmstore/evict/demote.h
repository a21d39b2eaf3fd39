/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demote.h: an object leaves memory for the tier: copied out, then each of its names is exchanged
 * with a stub. Readers see the object or the stub at every instant. In three steps, so that many
 * can be under way on one engine.
 */
#ifndef SHMS_DEMOTE_H
#define SHMS_DEMOTE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "engine.h"
#include "tier.h"
#include "tierformat.h"

/* One name of an object. Descriptors are the caller's; objects_fd is one of its own (not the store
 * handle's), for the names lock. */
struct shms_demote_name {
	int objects_fd, clean_fd;
	const char *name;   /* in objects/ */
	struct shmstore *s; /* where it is our own handle's: books, and its names lock; else NULL */
};

struct shms_demote {
	/* in */
	struct shms_tier *t;
	struct shms_demote_name *names; /* all that the caller knows of */
	size_t n_names;                 /* more than one: the caller holds shms_tier_lock() */
	/* also where somebody maps or has it open: its memory then stays until they let go */
	bool mapped;
	/* out */
	/* 0, -EAGAIN (changed, mapped, or has names that we do not know: not demoted),
	 * -ENOSPC (disk full), -errno */
	int error;
	uint64_t memory;  /* bytes of memory that it took */
	bool freed;       /* and that are free now */
	bool clean;       /* nothing was written: the tier file was there */
	uint64_t written; /* bytes of the new tier file, also of one that is a clean copy now */
	/* internal */
	bool resident; /* we made one */
	int first;     /* the name with a clean stub; -1: none */
	int fd, tier_fd;
	uint64_t claimed,
		/* of the room on the disk: for the copy at most; and what its file
		 * takes, once it has its name */
		taken;
	struct stat st;
	struct shms_stub stub;
	struct shms_tier_header header;
	char tmp_name[SHMS_TIER_NAME];
	struct shms_job job;
};

/* Looks at the object. 1: no copy is needed, go on with the finish; 0: job is ready for
 * shms_engine_store(); -errno as in error: it is over. */
int shms_demote_begin(struct shms_demote *d);
/* After the copy (or without): names change. Sets the results. */
int shms_demote_finish(struct shms_demote *d);
/* Frees what is held. After begin in any case. */
void shms_demote_end(struct shms_demote *d);
/* All of it, in the calling thread. */
int shms_demote_one(struct shms_demote *d);

/*
 * Of these steps, for what is no file in objects/ (packgive.c). _init: nothing is held; _end() is
 * owed. _copy: d->job is ready to copy d->fd, whose header is h, to a new tier file; 0, -ENOSPC,
 * -errno. _name_copy: after the copy, with the names locked, the stub gets its name in clean/, and
 * the tier file its own; 0, -errno.
 */
struct shms_header;
void shms_demote_init(struct shms_demote *d);
int shms_demote_copy(struct shms_demote *d, const struct shms_header *h);
int shms_demote_name_copy(struct shms_demote *d, const struct shms_demote_name *n);

/*
 * A store's packed objects leave memory for the tier, and its segments'
 * memory goes back to the kernel.
 *
 * Only the store's own process can do that, since it alone may give up the
 * store's names (segments.md).
 */

struct shms_packdemoted {
	uint64_t n, bytes; /* objects, and the memory that they took */
};

/*
 * Demotes until so many bytes are free, or most objects went, or nothing is left that may
 * go: what nobody else has, and nobody looks at; what was not used lately first
 * (packtrim.c). For the owner's handle of a store that takes part in the tier, whose
 * process it is. No lock of the store is held.
 */
struct shms_packdemoted shms_packdemote(struct shmstore *s, struct shms_tier *t, uint64_t bytes,
					uint64_t most);

#endif
