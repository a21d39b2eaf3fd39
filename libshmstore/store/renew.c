/* SPDX-License-Identifier: Apache-2.0 */
/*
 * renew.c: see parts.h.
 *
 * A store is gone when its page has no name any more, or another file has it. An owner that is
 * killed leaves the page: who opens the store again takes it over, and nothing changes for who
 * reads. The descriptor of the handle keeps its number (dup3), so that threads that are just using
 * it see the former store or the new one, and never a number that is somebody else's.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "detail.h"
#include "handle.h"
#include "packread.h"
#include "parts.h"
#include "sys.h"

static bool is_there(const struct shmstore *s)
{
	struct stat st;

	return fstatat(s->objects_fd, "../" SHMS_PAGE_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       st.st_ino == s->page_inode;
}

/* The handle goes on with what fresh found. */
static int take(struct shmstore *s, struct shmstore *fresh)
{
	char *former = shms_handle(s)->segments;
	struct shms_pack *pack;
	int r;

	SHMS_HELD(&shms_handle(s)->packed.lock);
	r = dup3(fresh->objects_fd, s->objects_fd, O_CLOEXEC) < 0 ? -errno : 0;
	if (r == 0) {
		shms_handle(s)->segments = shms_handle(fresh)->segments;
		shms_handle(fresh)->segments = former;
		memcpy(s->page->uuid, fresh->page->uuid, sizeof(s->page->uuid));
		s->page->pid = fresh->page->pid;
		s->page->start_time = fresh->page->start_time;
		s->page_inode = fresh->page_inode;
		s->dir_inode = fresh->dir_inode;
		s->unowned = fresh->unowned;
		s->tier_on = fresh->tier_on;
	}
	pack = shms_packed_pack(s);
	if (pack)
		shms_packread_end(pack);
	return r;
}

int shms_renew(struct shmstore *s, bool *ret_renewed)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *fresh;
	int r;

	*ret_renewed = false;
	if (is_there(s))
		return 0;
	o.flags = SHMSTORE_OPEN_READONLY | (shms_handle(s)->any_user ? SHMSTORE_OPEN_ANY_USER : 0);
	r = shmstore_open(s->p, s->name, &o, &fresh);
	if (r == -ENOENT) {
		return shms_detail(-ENOENT, NULL,
				   "the store %s is gone since its owner, process %u, ended; the "
				   "handle goes on when a process opens the name again",
				   s->name, (unsigned)s->page->pid);
	}
	if (r < 0)
		return r;
	r = take(s, fresh);
	shmstore_close(fresh);
	*ret_renewed = r == 0;
	return r < 0 ? shms_error(r) : 0;
}

int shms_owner(struct shmstore *s, int *ret_pid, int *ret_alive)
{
	struct shms_page page;
	bool renewed;
	int r = shms_renew(s, &renewed);
	_fd_ int dir_fd = r < 0 ? r : shms_open_dir(s->objects_fd, "..");

	r = dir_fd < 0 ? dir_fd : shms_page_read(dir_fd, &page);
	if (r < 0)
		return shms_error(r);
	*ret_pid = (int)page.pid;
	*ret_alive = shms_page_alive(dir_fd);
	return *ret_alive < 0 ? shms_error(*ret_alive) : 0;
}
