/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierref.c: the tier's locks: files and directories are flocked while a few names change. A
 * stopped holder must not stop others for ever, so each lock is tried for a time.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "detail.h"
#include "page.h"
#include "sys.h"
#include "tier.h"

/* Bytes of the lock's file: the next in turn; the one that evicts for a put. */
enum {
	NEXT,
	FOR_PUT
};

/* One step: in a queue first the right to be the next one, by a lock on a byte, then the
 * file's lock. 0, -EBUSY, -errno. */
static int step(int fd, bool queue, bool *io_next)
{
	int r = queue && !*io_next ? shms_lock_bytes(fd, F_WRLCK, NEXT, 1) : 0;

	if (r < 0)
		return r == -EAGAIN ? -EBUSY : shms_error(r);
	*io_next = true;
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EINTR)
			return errno == EWOULDBLOCK ? -EBUSY : shms_error(errno);
	}
	if (queue)
		(void)shms_lock_bytes(fd, F_UNLCK, NEXT, 1);
	return 0;
}

static int lock(int fd, bool queue, uint64_t end, int (*tick)(void *arg), void *arg)
{
	struct timespec pause = {.tv_nsec = 50000};
	bool next = false;
	int r;

	while ((r = step(fd, queue, &next)) == -EBUSY) {
		if (shms_now_mono_ns() >= end)
			return r;
		if (tick && tick(arg))
			return -ECANCELED;
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < 1000000)
			pause.tv_nsec *= 2;
	}
	return r;
}

int shms_tier_flock(int fd, unsigned wait_ms)
{
	return lock(fd, false, wait_ms ? shms_now_mono_ns() + wait_ms * 1000000ull : 0, NULL, NULL);
}

static int open_lock(const struct shms_tier *t)
{
	_fd_ int fd =
		shms_openat(t->dir_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	/* Root's hand, the user's file: they share the lock. */
	if (fd < 0 || (t->uid != geteuid() && fchown(fd, t->uid, (gid_t)-1) < 0))
		return shms_error(errno);
	return shms_take_fd(&fd);
}

int shms_tier_lock(struct shms_tier *t, unsigned wait_ms, int (*tick)(void *arg), void *arg,
		   int *ret_fd)
{
	uint64_t ns = wait_ms * 1000000ull, end = shms_now_mono_ns() + ns;
	int fd, r;

	if (!shms_turns_take(&t->turns, ns, tick, arg))
		return shms_now_mono_ns() < end ? -ECANCELED : -EBUSY;
	fd = open_lock(t);
	r = fd < 0 ? fd : lock(fd, true, end, tick, arg);
	atomic_store_explicit(&t->stuck, r == -EBUSY, memory_order_relaxed);
	if (r < 0) {
		shms_close_fd(fd);
		shms_turns_end(&t->turns);
		return r;
	}
	*ret_fd = fd;
	return 0;
}

int shms_tier_unlock(struct shms_tier *t, int fd)
{
	if (fd < 0)
		return -1;
	(void)shms_lock_bytes(fd, F_UNLCK, FOR_PUT, 1);
	shms_unlock_fd(fd);
	shms_turns_end(&t->turns);
	return -1;
}

void shms_tier_for_put(int fd)
{
	(void)shms_lock_bytes(fd, F_WRLCK, FOR_PUT, 1);
}

void shms_tier_after_put(struct shms_tier *t, unsigned wait_ms)
{
	_fd_ int fd = open_lock(t);
	uint64_t end = shms_now_mono_ns() + wait_ms * 1000000ull;
	struct timespec pause = {.tv_nsec = 50000};

	while (fd >= 0 && !atomic_load_explicit(&t->stuck, memory_order_relaxed)) {
		struct flock lock = {
			.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = FOR_PUT, .l_len = 1};

		if (fcntl(fd, F_OFD_GETLK, &lock) < 0 || lock.l_type == F_UNLCK)
			return;
		atomic_store_explicit(&t->stuck, shms_now_mono_ns() >= end, memory_order_relaxed);
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < 400000)
			pause.tv_nsec *= 2;
	}
}

int shms_tier_lock_names(int objects_fd)
{
	int r = shms_tier_flock(objects_fd, 0);
	bool asked = r == -EBUSY;

	/* The owner's threads leave it free for some microseconds only,
	 * between two of their calls. */
	for (unsigned ms = 0; r == -EBUSY && ms < SHMS_TIER_NAMES_MS; ms += SHMS_TIER_ASK_MS) {
		shms_move_ask(objects_fd, true);
		r = shms_tier_flock(objects_fd, SHMS_TIER_ASK_MS);
	}
	if (asked)
		shms_move_ask(objects_fd, false);
	if (r == 0)
		shms_move_settle(objects_fd);
	return r == -EBUSY ? shms_tier_names_held() : r;
}

int shms_tier_names_held(void)
{
	return shms_detail(-ETIMEDOUT, NULL,
			   "another process has held the store's names for a second: it was "
			   "stopped in the middle of a demotion, or the host is very busy");
}

bool shms_tier_settle_names(int storefd)
{
	_locked_ int objects_fd = shms_open_dir(storefd, SHMS_DIR_OBJECTS);

	if (objects_fd < 0 || shms_tier_flock(objects_fd, 0) < 0)
		return false;
	shms_move_settle(objects_fd);
	return true;
}

void shms_tier_unlock_names(int objects_fd)
{
	flock(objects_fd, LOCK_UN);
}
