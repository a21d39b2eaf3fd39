/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seguse.h: memory of a live owner's free slots, taken by who needs it, while the owner makes no
 * call or is stopped (docs/segments.md "Memory of silent stores").
 */
#ifndef SHMS_SEGUSE_H
#define SHMS_SEGUSE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "segment.h"

#define SHMS_SEGUSE_AGAIN_MS 100u /* after there was nothing to take */

struct shms_seglook;

/* The owner's side. */
struct shms_seguse {
	uint32_t taken; /* the word as it was when it was learned what has memory */
	bool shut;      /* nothing is put: somebody takes what is free */
};

enum shms_segusable {
	SHMS_SEGUSABLE_NOT,
	SHMS_SEGUSABLE,
	SHMS_SEGUSABLE_ANEW /* free slots may have lost their memory */
};

/* Of a new segment, or one that its owner comes back to. fd: of the file, not the
 * description with the lock. */
struct shms_seguse shms_seguse_begin(struct shms_segment_use *w, int fd);
/* After shms_seguse_enter() said false. */
enum shms_segusable shms_seguse_look(struct shms_segment_use *w, struct shms_seguse *u, int fd);

/* May free slots be used until shms_seguse_leave(), which is owed whatever it says? False: what has
 * memory may have to be learned anew. */
static inline bool shms_seguse_enter(struct shms_segment_use *w, const struct shms_seguse *u)
{
	atomic_store_explicit(&w->owner, 1, memory_order_relaxed);
	/* The taker makes the kernel put the barrier between the two. */
	atomic_signal_fence(memory_order_seq_cst);
	return atomic_load_explicit(&w->taken, memory_order_acquire) == u->taken && !u->shut;
}

static inline void shms_seguse_leave(struct shms_segment_use *w)
{
	/* Release: a taker sees the slots as they are now. */
	atomic_store_explicit(&w->owner, 0, memory_order_release);
}

/*
 * Takes memory of free slots out of the segment l, which was opened for writing, and whose owner's
 * page says that it looks. Returns the bytes. Sets *ret_again unless it was looked for a moment
 * ago, in vain: another process may be at it, or have been quicker.
 */
uint64_t shms_seguse_take(struct shms_seglook *l, uint64_t now_ms, bool *ret_again);

#endif
