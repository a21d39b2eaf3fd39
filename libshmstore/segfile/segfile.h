/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segfile.h: a segment as a file, and a store's place in it (docs/segments.md "Files").
 *
 * A segment is the file segments/<uuid> of its owner's store. Each other store that has a place in
 * it has a link of the same name. The functions take the store's directory segments/ as dirfd. A
 * place is a number, a lock on the byte of that number, and a record.
 *
 * Threads: one call at a time for each segfile. Fork: see shms_segfile_fork_child().
 */
#ifndef SHMS_SEGFILE_H
#define SHMS_SEGFILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "segment.h"

#define SHMS_SEGFILE_NAME 33u /* 32 hexadecimal digits of the uuid, and a NUL */

/*
 * A place. segment.books is writable, and no child has it. segment.bytes can only be read; children
 * inherit it, and the page that keeps the lock, so that a child's views stay protected after the
 * parent's death.
 */
struct shms_segfile {
	struct shms_segment segment;
	unsigned holder;
	bool kept;
	uint64_t inode;
	bool linked;         /* the place came with its link: no ticket names that yet */
	uint64_t books_size; /* of the writable map: the owner's has the extents, too */
	void *life;          /* a page of the description that has the lock */
	char name[SHMS_SEGFILE_NAME];
};

/*
 * Makes a segment, as its owner: holder 0. store: the store's uuid; kept: the store's names outlive
 * its process. All of the file but its extents has memory then. 0; -ENOSPC, -ENOMEM, -EDQUOT,
 * -EMFILE, …
 */
int shms_segfile_create(int dirfd, const struct shms_segment_shape *shape, const uint8_t store[16],
			bool kept, struct shms_segfile *ret);
/*
 * Takes a place in the segment of that uuid, which is another store's link at path beneath fromfd,
 * and links it here. 0; -ESTALE: it is not there any more; -EAGAIN: all places are taken (counted
 * in the segment's control page); -EPERM: another user's; -EBADMSG: no such segment.
 */
int shms_segfile_join(int fromfd, const char *path, const uint8_t uuid[16], int dirfd,
		      const uint8_t store[16], bool kept, struct shms_segfile *ret);
/*
 * The same of segment uuid of another store's segments/, which is dirfd, for a reader, which has no
 * link of its own. visitor: the uuid of its place. -ENOENT: there is none.
 */
int shms_segfile_visit(int dirfd, const uint8_t uuid[16], const uint8_t visitor[16],
		       struct shms_segfile *ret);
/*
 * Takes a kept store's place in segment name of dirfd again, and gives back the views of its last
 * process, and what that was just about. 0; -ENOENT: the store has no place there; -EBUSY: its last
 * process, a child of that, or a process that recovers it has the lock; -EBADMSG.
 */
int shms_segfile_reopen(int dirfd, const char *name, const uint8_t store[16],
			struct shms_segfile *ret);
/*
 * Gives the place up, and all that the store has in the segment. No view may live. The link goes as
 * well, unless a lease is out in the segment, because tickets may name this link; gc removes it
 * later. Returns the bytes that go with it if it was the last link. dirfd
 * -1: a reader's, which has none.
 */
uint64_t shms_segfile_leave(struct shms_segfile *f, int dirfd, uint64_t now_ms);
/* The same of a place just joined that was not used after all: its link goes in any case,
 * if it came with the place. */
uint64_t shms_segfile_unjoin(struct shms_segfile *f, int dirfd, uint64_t now_ms);
/*
 * Ends the maps, and with them the lock. A kept store's names stay; any other store's place is
 * recovered by others.
 */
void shms_segfile_close(struct shms_segfile *f);
/*
 * Ends all but the map that views need, and the lock: views may be used until _close(). keep: the
 * names stay, and the place. Else the caller has dropped all names; the place is recovered by
 * others after _close(), and the link goes unless a lease is out in the segment.
 */
uint64_t shms_segfile_retire(struct shms_segfile *f, int dirfd, bool keep, uint64_t now_ms);
/*
 * In a child of fork(), which does not have the writable map. views: the process may have views of
 * the segment, for which the maps for reading stay.
 */
void shms_segfile_fork_child(struct shms_segfile *f, bool views);

void shms_segfile_name(const uint8_t uuid[16], char ret_name[SHMS_SEGFILE_NAME]);
#define SHMS_SEGMENT_NO_PLACE UINT32_MAX
/* The place of the store of that uuid, alive or not, unless the store was taken apart. */
unsigned shms_segment_place(const struct shms_segment *g, const uint8_t store[16]);
/* Is a lease out anywhere in the segment? */
bool shms_segment_promised(const struct shms_segment *g, uint64_t now_ms);

/* For this room. Checks that the file fd is a segment, and reads its shape and uuids. Maps
 * nothing. */
int shms_segfile_check(int fd, struct shms_segment *ret, struct stat *ret_st);
/* Checks that all that may be changed through a map, or is to be read into memory, has memory. */
int shms_segfile_check_memory(int fd, const struct shms_segment *g, uint64_t n_born);
/* Maps the books, up to the extents, for writing, and checks that they have memory. After an error
 * they may be mapped. */
int shms_segfile_map(int fd, struct shms_segment *g);

/*
 * Tells whether a holder lives, by a lock of its open file description (OFD) on the byte
 * of the segment's file that has the holder's number.
 *
 * The lock belongs to the description, which a descriptor or a mapping keeps. So it outlives closed
 * descriptors and stopped processes, and ends when the last process that maps it is dead. If a byte
 * is not locked, no process has the segment mapped as that holder, and none ever will. If it is
 * locked, the holder lives, or a process recovers it.
 *
 * One description may lock several bytes. A lock that shall not last is ended explicitly, since a
 * forked child may have the description, too.
 */

/* the byte of who punches free extents of a segment without an owner */
#define SHMS_SEGLOCK_TRIM     512u
/* + a holder's number: the byte that children of its forks lock together */
#define SHMS_SEGLOCK_CHILDREN 1024u

/* 0; -EAGAIN: another description has it; another -errno. */
int shms_seglock_try(int fd, unsigned holder);
void shms_seglock_end(int fd, unsigned holder);
/* Has another description that byte locked? fd may be one that can only be read. */
bool shms_seglock_taken(int fd, unsigned byte);

#endif
