/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segown.h: the owner's part of a segment: puts objects into its file, takes memory back, and gives
 * it back to the kernel. Functions that change only words of slots are in segslot.h; they take
 * file's segment.
 *
 * The caller has one lock around all of it.
 */
#ifndef SHMS_SEGOWN_H
#define SHMS_SEGOWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "segalloc.h"
#include "segfile.h"
#include "segmem.h"
#include "segment.h"
#include "seguse.h"

struct shms_segown {
	struct shms_segfile file;
	struct shms_segalloc alloc;
	struct shms_seguse use;
	int fd;             /* to write and to allocate; not the description with the lock */
	uint64_t chunk;     /* memory is taken ahead by so many bytes */
	uint64_t slots_end; /* slots have memory up to there, in the file */
	struct shms_segmem mem;
	/* what the put may take that is under way; NULL: nobody counts. The caller's */
	struct shms_seggrow *grow;
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

/*
 * As shms_segfile_create(). huge: the partition has pages of 2 MiB, so that a large file takes
 * memory in no smaller units.
 */
int shms_segown_create(int dirfd, const struct shms_segment_shape *shape, const uint8_t store[16],
		       bool kept, bool huge, struct shms_segown *ret);
/* Bytes that such a segment takes at most, with a first object of that size; ahead: and with
 * what is taken ahead then. */
uint64_t shms_segown_cost(const struct shms_segment_shape *shape, uint64_t size, bool huge,
			  bool ahead);
/*
 * The owner's part of a kept store's segment whose place was reopened. Takes file over, also where
 * it fails. 0, -ENOMEM, -EMFILE.
 */
int shms_segown_reopen(struct shms_segfile *file, int dirfd, bool huge, struct shms_segown *ret);
/* Frees the owner's memory. shms_segfile_leave() or _close() comes first. */
void shms_segown_deinit(struct shms_segown *o);

/*
 * May free slots be used until shms_segown_leave(), which is owed whatever it says?
 * Where somebody took their memory, it is learned anew what has any; while somebody
 * takes, none may. A put asks by itself.
 */
__attribute__((cold)) bool shms_segown_look(struct shms_segown *o, uint64_t now_ms);
static inline bool shms_segown_enter(struct shms_segown *o, uint64_t now_ms)
{
	return shms_seguse_enter(shms_segment_use(&o->file.segment), &o->use) ||
	       shms_segown_look(o, now_ms);
}
static inline void shms_segown_leave(struct shms_segown *o)
{
	shms_seguse_leave(shms_segment_use(&o->file.segment));
}

/*
 * Puts a copy of the object, whose name is the owner's. ret: where it is. 0; -ENOSPC: no room in
 * the segment (then *ret_full is set), or in the partition, or it may take no more (then grow says
 * so); -EFBIG: it is no packed object;
 * -EBADMSG: the slot holds damage, and is not used any more.
 */
int shms_segown_put(struct shms_segown *o, const struct shms_segobject *what, uint64_t now_ms,
		    uint32_t *ret_slot, uint32_t *ret_generation, bool *ret_full);
/*
 * Copies the object o, whose extent that is, into the slot to, which the allocator gave out after
 * shms_segown_enter(), and whose extent, of the same class, has memory; the copy has the owner's
 * name. 0; -EBADMSG: the slot holds damage, and is not used any more.
 */
int shms_segown_copy(struct shms_segown *own, const struct shms_segpacked *o, const uint8_t *extent,
		     uint32_t to);
/* The class of the extent that the object would get. -EFBIG, -EINVAL: it is no packed object. */
int shms_segown_class(const struct shms_segobject *what);
/* Takes a slot back, if nobody has it, that the owner just left or was told of by a hint. */
bool shms_segown_take_back(struct shms_segown *o, uint32_t slot, uint64_t now_ms);
/* Gives memory of free extents back to the kernel, by whole pages. Returns bytes; 0 while another
 * process takes it, which counts them. */
uint64_t shms_segown_trim(struct shms_segown *o, uint64_t now_ms);
/* Is no slot in use? Looks at all of them. */
bool shms_segown_unused(struct shms_segown *o, uint64_t now_ms);

#endif
