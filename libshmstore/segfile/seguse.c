/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seguse.c: see seguse.h. The owner writes one word and reads the other's, and so does who takes:
 * one of the two sees the other.
 *
 * Only slots that are FREE lose memory: two that close a slot would take one another's
 * CLOSING for their own. Rejected: a fence in each put (8 ns); a lock of the owner's,
 * which a stopped one would hold.
 */
#include "seguse.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "segfile.h"
#include "seglook.h"
#include "segmem.h"

#define WAIT_NS 50000
#define WAITS   20 /* for a put to end */

struct shms_seguse shms_seguse_begin(struct shms_segment_use *w, int fd)
{
	struct shms_seguse u;

	/* The last owner may have been killed in a put. */
	atomic_store_explicit(&w->owner, 0, memory_order_relaxed);
	u.taken = atomic_load_explicit(&w->taken, memory_order_acquire);
	/* A taker that begins later raises the word. */
	u.shut = shms_seglock_taken(fd, SHMS_SEGLOCK_TRIM);
	return u;
}

enum shms_segusable shms_seguse_look(struct shms_segment_use *w, struct shms_seguse *u, int fd)
{
	uint32_t taken = atomic_load_explicit(&w->taken, memory_order_acquire), before = u->taken;

	u->shut = shms_seglock_taken(fd, SHMS_SEGLOCK_TRIM);
	if (u->shut)
		return SHMS_SEGUSABLE_NOT;
	u->taken = taken;
	return taken == before ? SHMS_SEGUSABLE : SHMS_SEGUSABLE_ANEW;
}

/* True: the owner uses no free slot, nor will it as long as the lock is ours. */
static bool keep_out(struct shms_segment_use *w)
{
	atomic_fetch_add_explicit(&w->taken, 1, memory_order_seq_cst);
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) != 0)
		return false;
	for (int i = 0; i < WAITS; i++) {
		/* acquire: pairs with shms_seguse_leave(). */
		if (!atomic_load_explicit(&w->owner, memory_order_acquire))
			return true;
		nanosleep(&(struct timespec){.tv_nsec = WAIT_NS}, NULL);
	}
	return false;
}

uint64_t shms_seguse_take(struct shms_seglook *l, uint64_t now_ms, bool *ret_again)
{
	struct shms_segment_use *w = shms_segment_use(&l->segment);
	uint64_t freed = 0;

	if (now_ms - atomic_load_explicit(&w->vain_ms, memory_order_relaxed) < SHMS_SEGUSE_AGAIN_MS)
		return 0;
	*ret_again = true;
	if (shms_seglock_try(l->fd, SHMS_SEGLOCK_TRIM) < 0)
		return 0;
	if (keep_out(w))
		(void)shms_segtrim_free(&l->segment, l->fd, &freed);
	if (!freed)
		atomic_store_explicit(&w->vain_ms, now_ms, memory_order_relaxed);
	shms_seglock_end(l->fd, SHMS_SEGLOCK_TRIM);
	return freed;
}
