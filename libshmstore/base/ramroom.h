/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ramroom.h: how much memory the kernel lets this process take, before it kills one for it: what
 * its memory cgroup, or one above, may use still, and what the host has. A tmpfs may be larger than
 * either, and says nothing of them.
 *
 * To ask costs some file reads. So a sixteenth of the answer is a budget, for which nobody asks;
 * until all of it could be used up by others, which take memory meanwhile. Threads: any.
 */
#ifndef SHMS_RAMROOM_H
#define SHMS_RAMROOM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sys.h"

struct shms_ramroom {
	_Atomic int64_t left;      /* of the budget */
	_Atomic uint64_t until_ns; /* it holds */
	/* so little was there when it was asked last that each byte is to be counted */
	_Atomic bool narrow;
};

/* The tightest limit. */
struct shms_ramroom_look {
	uint64_t room, limit; /* bytes: that may be taken, less what is spared; of so many */
	char path[512]; /* of the cgroup's directory, or of the file that says it of the host */
};

/* Looks. proc, cgroup: NULL: /proc and /sys/fs/cgroup. False: nothing could be read. */
bool shms_ramroom_look(const char *proc, const char *cgroup, struct shms_ramroom_look *ret);
/* May so many bytes more be taken? They are counted as taken then. */
bool shms_ramroom_take_among(struct shms_ramroom *r, uint64_t bytes);

static inline bool shms_ramroom_take(struct shms_ramroom *r, uint64_t bytes)
{
	if (bytes > INT64_MAX)
		return false;
	return (atomic_fetch_sub_explicit(&r->left, (int64_t)bytes, memory_order_relaxed) >=
			(int64_t)bytes &&
		shms_now_mono_ns() < atomic_load_explicit(&r->until_ns, memory_order_relaxed)) ||
	       shms_ramroom_take_among(r, bytes);
}

/* How many bytes may be taken without being asked for; what is then taken is
 * told by shms_ramroom_took(). */
static inline uint64_t shms_ramroom_free(struct shms_ramroom *r)
{
	int64_t left = atomic_load_explicit(&r->left, memory_order_relaxed);

	if (atomic_load_explicit(&r->narrow, memory_order_relaxed))
		return left > 0 ? (uint64_t)left : 0;
	return left > 0 || shms_ramroom_take_among(r, 0) ? UINT64_MAX : 0;
}

static inline void shms_ramroom_took(struct shms_ramroom *r, uint64_t bytes)
{
	if (bytes)
		(void)shms_ramroom_take(r, bytes);
}

#endif
