/* SPDX-License-Identifier: Apache-2.0 */
/* deadleases.c: what tickets of dead stores keep in memory: see pool.h. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "handle.h"
#include "lease.h"
#include "pool.h"
#include "sys.h"
#include "walk.h"

#define COARSE_NS 20000000 /* files' times are of the last tick */

/* Calls fn for each lease of the store open as fd. */
static void each_lease(int store_fd,
		       void (*fn)(int dirfd, const char *name, const struct stat *st,
				  uint64_t expiry_ms, void *arg),
		       void *arg)
{
	_dir_ DIR *dir = NULL;
	struct dirent *e;
	uint64_t expiry_ms;
	struct stat st;
	int error = shms_list_dir(store_fd, SHMS_DIR_HANDOFF, &dir);

	while ((e = shms_readdir(dir, &error)) != NULL) {
		if (shms_lease_parse(e->d_name, &expiry_ms) &&
		    fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(st.st_mode))
			fn(dirfd(dir), e->d_name, &st, expiry_ms, arg);
	}
}

struct former {
	int64_t opened_ns;
	uint64_t freed;
};

/* A lease of ours was linked after we opened the store, and that is the file's
 * last change or before it. */
static void end_former(int dirfd, const char *name, const struct stat *st, uint64_t expiry_ms,
		       void *arg)
{
	struct former *f = arg;

	(void)expiry_ms;
	if (shms_stat_ns(&st->st_ctim) + COARSE_NS < f->opened_ns &&
	    unlinkat(dirfd, name, 0) == 0 && st->st_nlink == 1)
		f->freed += shms_blocks(st);
}

uint64_t shms_deadleases_end_former(struct shmstore *s)
{
	struct former f = {.opened_ns = s->page->created_ns};

	each_lease(s->dir_fd, end_former, &f);
	return f.freed;
}

static void add(int dirfd, const char *name, const struct stat *st, uint64_t expiry_ms, void *arg)
{
	struct shms_deadleases *l = arg;

	(void)dirfd;
	(void)name;
	l->bytes += shms_blocks(st) / st->st_nlink;
	if (expiry_ms > l->expiry_ms)
		l->expiry_ms = expiry_ms;
}

static int on_store(const struct shms_walk_store *store, void *arg)
{
	if (store->fd >= 0 && shms_page_alive(store->fd) == SHMSTORE_DEAD)
		each_lease(store->fd, add, arg);
	return 0;
}

void shms_deadleases_look(struct shmstore_partition *p, struct shms_deadleases *ret)
{
	struct shms_walk w = {.store = on_store, .arg = ret};

	*ret = (struct shms_deadleases){0};
	(void)shms_walk_run(&w, p);
}
