/* SPDX-License-Identifier: Apache-2.0 */
/*
 * space.c: room on a full partition: first our own recycled files, then those of our user's other stores, then what dead stores left, and where there is a disk tier what is used
 * least. The sweep of dead stores looks at every lock, so a partition that stays full is swept four times a second at most, however many
 * puts fail. What an eviction made room for others may take first, so it is tried again, but not for ever.
 */
#include "space.h"

#include <inttypes.h>
#include <sys/statvfs.h>

#include "detail.h"
#include "evict.h"
#include "gc.h"
#include "handle.h"
#include "pool.h"
#include "sys.h"

#define SWEEP_EVERY_NS 250000000ull
#define TRIES_MAX      32

/* True: dead stores were looked for just now. */
static bool sweep(struct shmstore_partition *p)
{
	uint64_t now = shms_now_mono_ns(), last = atomic_load_explicit(&p->swept_ns, memory_order_relaxed);

	if (last && now - last < SWEEP_EVERY_NS)
		return false;
	if (!atomic_compare_exchange_strong_explicit(&p->swept_ns, &last, now, memory_order_relaxed,
						     memory_order_relaxed))
		return false;
	shms_gc_sweep(p);
	return true;
}

bool shms_space_make(struct shmstore *s, uint64_t bytes, unsigned flags, int tries)
{
	uint64_t freed;

	if (shms_recycle_trim(s, true))
		return true;
	freed = shms_pool_take(s->p, s->uid, 0);
	if (freed) {
		shms_credit_gave(s, freed);
		return true;
	}
	if (tries <= 1 && sweep(s->p))
		return true;
	return !(flags & SHMSTORE_NO_EVICT) && tries < TRIES_MAX && shms_evict_for(s, bytes);
}

int shms_space_refused(struct shmstore *s, int error, uint64_t bytes)
{
	const char *path = s->p->path;
	uint64_t size, available;
	struct statvfs fs;

	if (error != -ENOSPC || shms_detail_is(error) || fstatvfs(s->p->fd, &fs) < 0)
		return error;
	size = (uint64_t)fs.f_blocks * fs.f_frsize;
	available = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (fs.f_files && !fs.f_ffree)
		return shms_detail(error, NULL, "the partition is full: all %" PRIu64 " inodes of %s are in use",
				   (uint64_t)fs.f_files, path);
	if (bytes > size && size)
		return shms_detail(error, NULL,
				   "the partition is full: %s has %" PRIu64 " bytes in all, and %" PRIu64
				   " were asked for",
				   path, size, bytes);
	return shms_detail(error, NULL,
			   "the partition is full: %" PRIu64 " bytes of %s are free (of %" PRIu64 "), and %" PRIu64
			   " were asked for",
			   available, path, size, bytes);
}
