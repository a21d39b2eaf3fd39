/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seglook.h: a segment as seen by a process without a place.
 *
 * A reader has a private copy of the books, and reads extents by system calls: a hostile process of
 * the segment's user may cut the file at any time, and a map would then raise SIGBUS. A writer
 * (segrescue.c) needs a map, so it never gets another user's segment.
 */
#ifndef SHMS_SEGLOOK_H
#define SHMS_SEGLOOK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "segment.h"

struct shms_seglook {
	struct shms_segment segment; /* bytes is NULL */
	uint64_t mapped;             /* for writing; 0: segment.books is a copy */
	uint64_t n_blocks;           /* bytes of memory it takes */
	uint64_t inode;
	uid_t uid; /* whose file it is */
	int fd;
	/* not 0: a part of some object could not be read, which therefore looks damaged */
	int error;
};

/*
 * Opens segment name of dirfd. write: to recover the dead, else only to read. Each slot is copied
 * as it was at one moment. 0; -ENOENT; -EBADMSG: it is none, or damaged; -ENOTSUP: of a later
 * version, or larger than any store makes; -EPERM: write, and it is another user's; or it is not
 * the user's whose directory this is; -ENOMEM, -EMFILE, …
 */
int shms_seglook_open(int dirfd, const char *name, bool write, struct shms_seglook *ret);
/* The same for reading one slot only. */
int shms_seglook_open_slot(int dirfd, const char *name, uint32_t slot, struct shms_seglook *ret);
void shms_seglook_close(struct shms_seglook *l);
/* Of a look for reading: copies a slot's words again, as they are now. 0; -EBADMSG:
 * the file was cut; -errno. */
int shms_seglook_again(const struct shms_seglook *l, uint32_t slot);
/* Copies it again. Is the object of that generation still there? If it cannot be read it is not. */
bool shms_seglook_has(const struct shms_seglook *l, uint32_t slot, uint32_t generation);
/* Of a look for reading: reads size bytes of the file from off on. 0, -EBADMSG, -errno. */
int shms_seglook_read(const struct shms_seglook *l, uint64_t off, void *ret, uint64_t size);
/* Copies the key of the object o, which was read out of its slot: o->key_size
 * bytes. 0, -EBADMSG, -errno. */
int shms_seglook_key(const struct shms_seglook *l, const struct shms_segpacked *o, void *ret);

/* ---- by its slots: what the memory is used for. Needs no owner, and changes nothing ---- */

/*
 * The memory that the object's extent is said to take. Of large extents, which begin at a page, the
 * rest of the last pages may never have been written.
 */
static inline uint64_t shms_segsurvey_bytes(const struct shms_segpacked *o)
{
	if (o->extent_size < SHMS_SEGCLASS_BIG)
		return o->extent_size;
	return (o->used + SHMS_SEGMENT_PAGE - 1) / SHMS_SEGMENT_PAGE * SHMS_SEGMENT_PAGE;
}

/* A store's share of memory is summed in so small parts that those of all stores add up to the
 * whole but for a byte each. */
#define SHMS_SHARE_SHIFT 16

/* Bytes of extents; linked + ghosts + inflight + pool = the segment's memory. */
struct shms_segsurvey {
	uint64_t n_linked, linked_bytes;     /* objects with a name or a lease */
	uint64_t n_ghosts, ghosts_bytes;     /* with views only */
	uint64_t n_inflight, inflight_bytes; /* being put */
	uint64_t pool_bytes;     /* the rest: books, free extents, what was allocated ahead */
	uint64_t stranded_bytes; /* the part of pool in pages that objects have the rest of */
	uint32_t n_leases;       /* that have not ended */
	/* Of the store that was asked for. */
	uint64_t n_named, named_bytes; /* objects that it has by name */
	uint64_t shared;    /* their bytes / names, summed, in 1 / 2^SHMS_SHARE_SHIFT bytes */
	uint64_t own_bytes; /* of those that have no other name and no lease */
	bool is_owner;
	uint32_t n_bad; /* slots that say what cannot be */
};

/*
 * store: the uuid of a store, of which there may be none here. If the segment changes meanwhile,
 * each slot is reported as it was at one moment.
 */
void shms_segsurvey(const struct shms_seglook *l, const uint8_t store[16], uint64_t now_ms,
		    struct shms_segsurvey *ret);

/*
 * An object that nobody has by name, or was promised: somebody has views of it, and the slot's
 * holder words say who; or the owner is putting it. Then the description may be of what the slot
 * had before, of which its bytes are right.
 */
struct shms_segunnamed {
	uint32_t slot, generation;
	bool inflight;
	uint64_t bytes;
	const struct shms_segpacked *object;
};
/* Calls fn for each, until fn returns another value than 0, which is returned. */
int shms_segsurvey_unnamed(const struct shms_seglook *l, uint64_t now_ms,
			   int (*fn)(const struct shms_segunnamed *o, void *arg), void *arg);

/*
 * segrescue.c: recovers the dead in a segment's file. Any process of the segment's user may do it:
 * gc, or a store that wants a place (docs/segments.md "When somebody is killed"). It may be
 * interrupted anywhere, and done twice.
 */

/*
 * Gives back what the holder had, and frees its place (an owner's place becomes an orphan's). The
 * caller has locked the holder's byte. gone false: the store is kept, and so are its names and its
 * place.
 */
void shms_segrescue_locked(const struct shms_segment *g, unsigned holder, bool gone);

struct shms_segrescued {
	uint32_t n_leases; /* that had ended, and went: of shms_segrescue_unlink() */
	uint64_t freed;    /* bytes of memory that went back to the kernel */
};

/*
 * Recovers every dead holder of the segment l, which was opened for writing. gone: a kept store
 * whose directory is being removed, or NULL. Where the owner is dead, free memory goes back to the
 * kernel. 0; -EBUSY: gone's place is still locked by a child that inherited views; -ENOMEM.
 */
int shms_segrescue(struct shms_seglook *l, const uint8_t gone[16], uint64_t now_ms,
		   struct shms_segrescued *ret);
/* The same of segment name of dirfd, as far as it can be had. Returns the bytes freed. */
uint64_t shms_segrescue_name(int dirfd, const char *name, uint64_t now_ms);
/* Takes ended leases of all objects in the segment l, which was opened for
 * writing. Returns how many. */
uint32_t shms_segrescue_leases(struct shms_seglook *l, uint64_t now_ms);
/*
 * Does what shms_segrescue() does for segment name of a dead store, whose segments/ is
 * dirfd; then removes the link.
 * Of another user's segment (we are root) the places are only told to be given up: a process of the
 * user recovers them. 0; 1: the link stays, because a lease is out in the segment, or a child of
 * the dead store lives; -ENOENT; -EBADMSG: it is no segment; -ENOTSUP: it is of a later version.
 * end_leases: the link goes all the same, and tickets that name it are stale.
 */
int shms_segrescue_unlink(int dirfd, const char *name, const uint8_t gone[16], uint64_t now_ms,
			  bool end_leases, struct shms_segrescued *ret);

#endif
