/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segown.h: a segment's owner: objects are put into its file, and their memory is taken back and given back. What only changes words of slots is
 * in segslot.h, whose functions take segment of file.
 *
 * One lock of the caller's around all of it.
 */
#ifndef SHMS_SEGOWN_H
#define SHMS_SEGOWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "segalloc.h"
#include "segfile.h"
#include "segpacked.h"

struct shms_segown {
	struct shms_segfile file;
	struct shms_segalloc alloc;
	int fd;             /* to write and to allocate; not the description with the lock */
	uint64_t chunk;     /* memory is taken ahead by so many bytes */
	uint64_t slots_end; /* slots have memory up to there, in the file */
	uint64_t bytes_end; /* the last chunk of extents ends there */
	uint8_t *backed;    /* a bit for each slot: all of its extent has memory */
};

/* An object as its writer has it. */
struct shms_segobject {
	const void *key;
	size_t key_size;
	const void *metadata;
	uint32_t metadata_size;
	const struct iovec *buffers;
	uint32_t n_buffers;
	uint8_t flags;           /* shms_segpacked_flags, without _TABLE */
	const uint8_t *checksum; /* [16], with _CHECKSUM */
};

#define SHMS_SEGOWN_BUFFERS 64u /* objects of more buffers are no packed ones */

/* As shms_segfile_create(). huge: the partition gives pages of 2 MiB, so that less is not to be had in a large file. */
int shms_segown_create(int dirfd, const struct shms_segment_shape *shape, const uint8_t store[16], bool kept, bool huge,
		       struct shms_segown *ret);
/* Of the kept store's place that was reopened, which is the owner's: takes file over, also where it fails. 0, -ENOMEM, -EMFILE. */
int shms_segown_reopen(struct shms_segfile *file, int dirfd, bool huge, struct shms_segown *ret);
/* The owner's memory; what becomes of its file is said by shms_segfile_leave() or _close(). */
void shms_segown_deinit(struct shms_segown *o);

/*
 * Puts a copy of the object; its name is the owner's. ret: where it is. 0; -ENOSPC: no room in the segment, or none in the partition (the first
 * with *ret_full); -EFBIG: it is no packed object; -EBADMSG: somebody scribbled on the slot, which is not used any more.
 */
int shms_segown_put(struct shms_segown *o, const struct shms_segobject *what, uint64_t now_ms, uint32_t *ret_slot,
		    uint32_t *ret_generation, bool *ret_full);
/* A slot that the owner just left, or that it was told of: taken back if nobody has it. */
bool shms_segown_take_back(struct shms_segown *o, uint32_t slot, uint64_t now_ms);
/* Memory of free extents goes back to the kernel: all that nobody has, in units of granule bytes. Returns bytes. */
uint64_t shms_segown_trim(struct shms_segown *o, uint64_t granule, uint64_t now_ms);
/* Is no slot in use? Looks at all. */
bool shms_segown_unused(struct shms_segown *o, uint64_t now_ms);

#endif
