/* SPDX-License-Identifier: Apache-2.0 */
/* nameslock.c: see nameslock.h. */
#include "nameslock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "page.h"
#include "recycle.h"
#include "sys.h"
#include "tier.h"

/* Does another process wait (page.c), which goes first? Who has waited for so long lets nobody by:
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
	struct shms_tries t = {0};
	int fd, error;

	/* The lock for each try, not over the wait. */
	do {
		shms_fairlock_share(&s->names);
		fd = shms_open_file(s->objects_fd, name, O_RDONLY);
		error = errno;
		shms_fairlock_release(&s->names);
		errno = error;
	} while (fd < 0 && shms_open_again(&t));
	return fd < 0 ? -errno : fd;
}

/* ---- taking part in the disk tier ------------------------------------------------------------ */

/*
 * Another process may exchange an object of ours with its stub only under the flock that we take
 * too. clean/ in the store's directory tells them that we do: it is made last, after every thread
 * of ours locks, and after the pool let go of published objects' files (an open descriptor keeps an
 * object's memory, and looks like somebody who uses it).
 */
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

/* ---- stubs ----------------------------------------------------------------------------------- */

/*
 * Stubs as a store's names. A stub in objects/ is the object's name like any other; what
 * differs is what goes with it: the tier file, with the stub's last name.
 */

bool shms_stub_is(int dirfd, const char *name)
{
	struct stat st;

	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
}

int shms_stub_drop(struct shmstore *s, int dirfd, const char *name)
{
	struct shms_tier *t;

	/* Without its tier the name goes all the same; gc finds the anchor. */
	if (shms_tier_own(s->p, &t) < 0)
		return unlinkat(dirfd, name, 0) < 0 ? -errno : 0;
	return shms_tier_release(t, dirfd, name);
}

void shms_clean_drop(struct shmstore *s, const char *name)
{
	if (s->clean_fd >= 0 && shms_stub_is(s->clean_fd, name))
		shms_stub_drop(s, s->clean_fd, name);
}

int shms_rename_over(struct shmstore *s, int dirfd, const char *from, const char *name)
{
	struct shms_stub stub;
	struct shms_tier *t;
	_fd_ int stub_fd = -1;

	/* The stub that loses its name here is looked at through its descriptor afterwards. */
	if (shms_stub_read(s->objects_fd, name, &stub, &stub_fd) < 0)
		stub_fd = -1;
	if (renameat(dirfd, from, s->objects_fd, name) < 0)
		return -errno;
	if (stub_fd >= 0 && shms_tier_own(s->p, &t) == 0)
		shms_tier_released(t, stub_fd, &stub);
	return 0;
}

void shms_tier_touch(struct shmstore *s, int fd)
{
	static const struct timespec NOW[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};

	/* Another user's file, or a kernel that refuses: it looks older than it is, no more. */
	if (atomic_load_explicit(&s->tier_on, memory_order_relaxed) && futimens(fd, NOW) < 0)
		return;
}
