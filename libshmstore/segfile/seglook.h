/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seglook.h: a segment as seen by a process without a place.
 *
 * A reader has a private copy of the books, and reads extents by system calls: a hostile process of
 * the segment's user may cut the file at any time, and a map would then raise SIGBUS. A writer
 * (segrescue.h) needs a map, so it never gets another user's segment.
 */
#ifndef SHMS_SEGLOOK_H
#define SHMS_SEGLOOK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "segment.h"
#include "segpacked.h"

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

#endif
