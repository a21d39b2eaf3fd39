/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierjoin.c: see tierjoin.h.
 *
 * Another process may exchange an object of ours with its stub only under the flock that we take
 * too. clean/ in the store's directory tells them that we do: it is made last, after every thread
 * of ours locks, and after the pool let go of published objects' files (an open descriptor keeps an
 * object's memory, and looks like somebody who uses it).
 */
#include "tierjoin.h"

#include <errno.h>
#include <sys/stat.h>

#include "sys.h"
#include "tier.h"

int shms_tier_join(struct shmstore *s)
{
	int fd, r = 0;

	shms_recycle_let_go(s);
	shms_fairlock_take(&s->names);
	if (!atomic_load_explicit(&s->tier_on, memory_order_relaxed)) {
		/* From the next lock on. clean/ is there only after that, and nobody
		 * touches our names before. */
		atomic_store_explicit(&s->tier_on, true, memory_order_relaxed);
		if (mkdirat(s->dir_fd, SHMS_DIR_CLEAN, 0700) < 0 && errno != EEXIST)
			r = -errno;
		fd = r < 0 ? r : shms_open_dir(s->dir_fd, SHMS_DIR_CLEAN);
		if (fd >= 0)
			s->clean_fd = fd;
		else
			atomic_store_explicit(&s->tier_on, false, memory_order_relaxed);
		r = fd < 0 ? shms_error(fd) : 0;
	}
	shms_fairlock_release(&s->names);
	return r;
}

void shms_tier_look(struct shmstore *s)
{
	uint64_t last = atomic_load_explicit(&s->tier_looked_ms, memory_order_relaxed);
	uint64_t now = atomic_load_explicit(&s->called_ms, memory_order_relaxed);

	/* One of the threads that come looks. */
	if (!atomic_compare_exchange_strong_explicit(&s->tier_looked_ms, &last, now,
						     memory_order_relaxed, memory_order_relaxed))
		return;
	/* A partition without room for one more directory has it a second later. */
	if (shms_tier_there(s->p))
		shms_tier_join(s);
}
