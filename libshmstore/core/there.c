/* SPDX-License-Identifier: Apache-2.0 */
/*
 * there.c: see there.h. A look takes three calls, so there are fifty a second at most. A file that
 * lost its name never gets one again.
 *
 * Sweepers go by age, and the page is written through a map, which leaves its times as they are: so
 * each ten minutes the page, the marker and the segments get new ones.
 */
#include "there.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "detail.h"
#include "sys.h"

#define TOUCH_MS 600000u

static bool is_named(int fd)
{
	struct stat st;

	return fd < 0 || fstat(fd, &st) < 0 || st.st_nlink > 0;
}

bool shms_there_are_descriptors(const struct shmstore *s)
{
	struct stat st;

	if ((s->readonly ? fstatat(s->objects_fd, "..", &st, 0) : fstat(s->dir_fd, &st)) < 0)
		/* one that cannot be looked at is there */
		return errno != EBADF && errno != ENOTDIR;
	return st.st_dev == s->p->device && st.st_ino == s->dir_inode;
}

bool shms_there_is_page(const struct shmstore *s)
{
	struct stat st;

	return fstatat(s->dir_fd, SHMS_PAGE_FILE, &st, AT_SYMLINK_NOFOLLOW) < 0
		       ? errno != ENOENT
		       : st.st_ino == s->page_inode;
}

static void touch(struct shmstore *s, struct shms_pack *pack)
{
	(void)utimensat(s->dir_fd, SHMS_PAGE_FILE, NULL, AT_SYMLINK_NOFOLLOW);
	/* Another user's, it may be. */
	(void)utimensat(s->p->fd, SHMS_MARKER_FILE, NULL, AT_SYMLINK_NOFOLLOW);
	if (pack)
		shms_pack_touch(pack);
}

int shms_there_look(struct shmstore *s)
{
	struct shms_pack *pack = shms_packed_pack(&s->packed);
	uint64_t now_ms = atomic_load_explicit(&s->called_ms, memory_order_relaxed);
	const char *what = NULL;

	if (!shms_there_are_descriptors(s))
		return shms_detail(
			-EPERM, NULL,
			"this program closed the descriptors of the store %s, and may have given "
			"their numbers to files of its own; open it again after its close",
			s->path);
	if (!shms_there_is_page(s))
		what = "its page, .store, has no name any more";
	else if (!is_named(s->objects_fd))
		what = "its directory objects/ is gone";
	else if (pack && !shms_pack_is_there(pack))
		what = "a file in segments/ is gone";
	if (what) /* each time: there_ms stays */
		return shms_detail(-ENOENT, NULL,
				   "somebody removed the store %s of this process: %s (systemd's "
				   "RemoveIPC, a sweeper of old files, or rm); what it has can be "
				   "read until it is closed: close it, and open it again",
				   s->path, what);
	if (now_ms - s->touched_ms >= TOUCH_MS) {
		if (s->touched_ms)
			touch(s, pack);
		s->touched_ms = now_ms;
	}
	atomic_store_explicit(&s->there_ms, now_ms, memory_order_relaxed);
	return 0;
}
