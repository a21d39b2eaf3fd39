/* SPDX-License-Identifier: Apache-2.0 */
/*
 * renew.c: see renew.h.
 *
 * A store is gone when its page has no name any more, or another file has it. An owner that is killed leaves the page: who opens the store again
 * takes it over, and nothing changes for who reads. The descriptors of the handle keep their numbers (dup3), so that threads that are just
 * using them see the former store or the new one, and never a number that is somebody else's.
 */
#include "renew.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "detail.h"
#include "handle.h"
#include "packread.h"
#include "sys.h"

static bool is_there(const struct shmstore *s)
{
	struct stat st;

	return fstatat(s->dir_fd, SHMS_PAGE_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == s->page_inode;
}

static int move_fd(int *from, int to)
{
	return *from < 0 || to < 0 || dup3(*from, to, O_CLOEXEC) >= 0 ? 0 : -errno;
}

/* The handle goes on with what fresh found. */
static int take(struct shmstore *s, struct shmstore *fresh)
{
	int *const from[] = {&fresh->objects_fd, &fresh->dir_fd};
	const int to[] = {s->objects_fd, s->dir_fd};
	struct shms_pack *pack;
	int r = 0;

	pthread_mutex_lock(&s->packed.lock);
	for (size_t i = 0; r == 0 && i < sizeof(to) / sizeof(to[0]); i++)
		r = move_fd(from[i], to[i]);
	if (r == 0) {
		memcpy(s->page->uuid, fresh->page->uuid, sizeof(s->page->uuid));
		s->page->pid = fresh->page->pid;
		s->page->start_time = fresh->page->start_time;
		s->page_inode = fresh->page_inode;
		s->dir_inode = fresh->dir_inode;
		s->unowned = fresh->unowned;
		s->tier_on = fresh->tier_on;
	}
	pack = shms_packed_pack(&s->packed);
	if (pack)
		shms_packread_end(pack);
	pthread_mutex_unlock(&s->packed.lock);
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
	o.flags = SHMSTORE_OPEN_READONLY | (s->any_user ? SHMSTORE_OPEN_ANY_USER : 0);
	r = shmstore_open(s->p, s->name, &o, &fresh);
	if (r == -ENOENT) {
		return shms_detail(-ENOENT, NULL,
				   "the store %s is gone since its owner, process %u, ended; the handle goes on when a "
				   "process opens the name again",
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

	if (r == 0)
		r = shms_page_read(s->dir_fd, &page);
	if (r < 0)
		return shms_error(r);
	*ret_pid = (int)page.pid;
	*ret_alive = shms_page_alive(s->dir_fd);
	return *ret_alive < 0 ? shms_error(*ret_alive) : 0;
}
