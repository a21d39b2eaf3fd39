/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segfile.h: a segment as a file, and a store's place in it (docs/segments.md "Files").
 *
 * A segment lies as segments/<uuid> in its owner's store; each store that has a place in it links it under this name into its own. A directory
 * is given as dirfd: the store's segments/. A place is a number, the lock on that byte (seglock.h), and a record.
 *
 * Threads: one call at a time for each segfile. Fork: see shms_segfile_fork_child().
 */
#ifndef SHMS_SEGFILE_H
#define SHMS_SEGFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "segment.h"

#define SHMS_SEGFILE_NAME 33u /* 32 hexadecimal digits of the uuid, and a NUL */

/*
 * A place. segment.books is writable, and no child has it; segment.bytes is for reading, and children inherit it, as they do the page that
 * keeps the lock: a child's views stay protected after its parent's death.
 */
struct shms_segfile {
	struct shms_segment segment;
	unsigned holder;
	bool kept;
	uint64_t books_size; /* of the writable map: the owner's has the extents, too */
	void *life;          /* a page of the description that has the lock */
	char name[SHMS_SEGFILE_NAME];
};

/*
 * Makes a segment and is its owner: holder 0. store: the store's uuid; kept: its names outlive its process. All but the extents has memory
 * then. 0; -ENOSPC, -ENOMEM, -EDQUOT, -EMFILE, …
 */
int shms_segfile_create(int dirfd, const struct shms_segment_shape *shape, const uint8_t store[16], bool kept,
			struct shms_segfile *ret);
/*
 * Takes a place in the segment of that uuid that is to be found as path beneath fromfd (another store's link), and links it here. 0; -ESTALE: it is
 * not there any more; -EAGAIN: all places are taken (counted in control); -EPERM: another user's; -EBADMSG: no such segment.
 */
int shms_segfile_join(int fromfd, const char *path, const uint8_t uuid[16], int dirfd, const uint8_t store[16],
		      bool kept, struct shms_segfile *ret);
/*
 * A kept store comes back to its place in segment name of dirfd; what its last process was just about, and its views, are given back. 0; -ENOENT:
 * it has no place there; -EBUSY: its last process, a child of that, or somebody who recovers it, has the lock still; -EBADMSG.
 */
int shms_segfile_reopen(int dirfd, const char *name, const uint8_t store[16], struct shms_segfile *ret);
/*
 * Gives the place up, and all that the store has in the segment, of which no view may live. The link goes as well, unless a lease stands in the
 * segment: tickets may name it; gc takes it later.
 */
void shms_segfile_leave(struct shms_segfile *f, int dirfd, uint64_t now_ms);
/* Ends the maps, and by that the lock. A kept store's names stay; of any other store others will recover the place. */
void shms_segfile_close(struct shms_segfile *f);
/* In a child of fork(): what writes is not there. views: the process may have views of the segment, which keep the maps for reading. */
void shms_segfile_fork_child(struct shms_segfile *f, bool views);

/* Somebody without a place: opens name of dirfd, checks and maps it. write: to recover the dead (segrescue.h), else only to look. */
struct shms_seglook {
	struct shms_segment segment; /* bytes is NULL with write: nobody reads objects then */
	uint64_t mapped;
	uint64_t n_blocks; /* bytes of memory it takes */
	uint64_t inode;
	int fd; /* write only */
};
int shms_seglook_open(int dirfd, const char *name, bool write, struct shms_seglook *ret);
void shms_seglook_close(struct shms_seglook *l);

void shms_segfile_name(const uint8_t uuid[16], char ret_name[SHMS_SEGFILE_NAME]);
/* Does a lease stand anywhere in the segment? */
bool shms_segment_promised(const struct shms_segment *g, uint64_t now_ms);

#endif
