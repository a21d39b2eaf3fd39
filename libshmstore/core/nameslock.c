/* SPDX-License-Identifier: Apache-2.0 */
/* nameslock.c: see nameslock.h. */
#include "nameslock.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "move.h"
#include "sys.h"
#include "transient.h"

/* Does another process wait (move.h), which goes first? Who has waited for so long lets nobody by:
 * it may be stopped, or dead. */
static bool gives_way(struct shmstore *s, uint64_t since_ns)
{
	_Atomic uint32_t *asked = &s->page->names_asked;

	if (!atomic_load_explicit(asked, memory_order_relaxed))
		return false;
	if (!since_ns || shms_now_mono_ns() - since_ns < SHMS_TIER_GIVE_MS * 1000000ull)
		return true;
	atomic_store_explicit(asked, 0, memory_order_relaxed);
	return false;
}

int shms_names_lock_tier(struct shmstore *s)
{
	struct timespec pause = {.tv_nsec = 50000};
	uint64_t since = 0, now;
	int r;

	/* Waited for without our own lock: threads that get go on meanwhile, and those that put
	 * wait together, not one after the other. */
	for (;; shms_fairlock_take(&s->names)) {
		if (!atomic_load_explicit(&s->tier_on, memory_order_relaxed))
			return 0;
		r = gives_way(s, since) ? -EBUSY : shms_tier_flock(s->objects_fd, 0);
		if (r == 0) {
			if (shms_move_begun(s->page))
				shms_move_settle(s->objects_fd);
			return 0;
		}
		shms_fairlock_release(&s->names);
		if (r != -EBUSY)
			return r;
		now = shms_now_mono_ns();
		since = since ? since : now;
		if (now - since >= SHMS_TIER_NAMES_MS * 1000000ull)
			return shms_tier_names_held();
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < 2000000)
			pause.tv_nsec *= 2;
	}
}

int shms_names_lock_of(struct shmstore *s, int objects_fd)
{
	return s ? shms_names_lock(s) : shms_tier_lock_names(objects_fd);
}

void shms_names_unlock_of(struct shmstore *s, int objects_fd)
{
	if (s)
		shms_names_unlock(s);
	else
		shms_tier_unlock_names(objects_fd);
}

int shms_names_open(struct shmstore *s, const char *name)
{
	int fd;

	/* The lock for each try, not over the wait. */
	for (struct shms_tries t = {0};;) {
		shms_fairlock_share(&s->names);
		fd = shms_openat(s->objects_fd, name,
				 O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0);
		if (fd < 0)
			fd = -errno;
		shms_fairlock_release(&s->names);
		if (fd >= 0)
			return fd;
		errno = -fd;
		if (!shms_open_again(&t))
			return -errno;
	}
}
