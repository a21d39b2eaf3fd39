/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gcaway.c: several partitions may have their tiers below one directory. A partition lives in
 * memory: when the host went down, or its file system was unmounted, its tier files stay behind,
 * and no gc of its own will ever run. So gc looks at its neighbours as well. tiermark.c proves that
 * one is gone; without proof it stays, and is reported.
 *
 * Of a directory whose partition is gone only what we make goes: users' directories with tier
 * files, and the mark, which goes last, so that the next gc finishes a killed one. Other files
 * stay, and the directory too.
 */
#include "gcaway.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "gcaction.h"
#include "mount.h"
#include "partition.h"
#include "sys.h"
#include "tiermark.h"
#include "tierscan.h"

struct away {
	struct shms_gc *g;
	int root_fd; /* the directory at hand */
	uint64_t n_left;
	struct shms_tierdrop freed;
	int error;
};

static bool is_file(int fd, const char *name)
{
	bool writing;
	uint64_t id;

	return shms_tier_parse_name(name, NULL, &id) == 0 || (shms_tierscan_tmp(fd, name, &writing) && !writing);
}

/* Takes a file of the directory fd, or counts it as left. */
static int take(struct away *a, int fd, const char *name)
{
	struct shms_tierdrop freed;
	int r = shms_gc_take_file(a->g, fd, name, &freed);

	if (r == -ENOMEM)
		return r;
	if (r < 0 && r != -ENOENT) {
		a->n_left++;
		a->error = a->error ? a->error : r;
		return 0;
	}
	a->freed.disk += freed.disk;
	a->freed.n_files += freed.n_files;
	return 0;
}

static int empty_user(struct away *a, const char *name)
{
	_dir_ DIR *dir = NULL;
	struct dirent *e;
	uint64_t left = a->n_left;
	int r = shms_gc_names(a->root_fd, name, &dir);

	if (r < 0 || !dir) {
		a->n_left++;
		return r;
	}
	while (r == 0 && (e = shms_readdir(dir, &r)) != NULL) {
		if (is_file(dirfd(dir), e->d_name))
			r = take(a, dirfd(dir), e->d_name);
		else
			a->n_left++;
	}
	if (r == 0 && a->n_left == left && !a->g->gone && unlinkat(a->root_fd, name, AT_REMOVEDIR) < 0)
		a->n_left += errno != ENOENT;
	return r;
}

static int empty_root(struct away *a)
{
	_dir_ DIR *dir = NULL;
	struct dirent *e;
	int r = shms_gc_names(a->root_fd, ".", &dir);
	uid_t uid;

	while (r == 0 && dir && (e = shms_readdir(dir, &r)) != NULL) {
		if (strcmp(e->d_name, SHMS_TIERMARK_FILE) == 0)
			continue;
		if (shms_tier_uid(e->d_name, &uid))
			r = empty_user(a, e->d_name);
		else if (strcmp(e->d_name, SHMS_TIERMARK_NEW) == 0)
			r = take(a, a->root_fd, e->d_name);
		else
			a->n_left++;
	}
	return r;
}

static int remove_root(struct shms_gc *g, int disk_fd, const char *name, int root_fd, const char *path, const char *why)
{
	struct shmstore_gc_action action = {.what = SHMSTORE_GC_TIER_OF};
	struct away a = {.g = g, .root_fd = root_fd};
	int r = empty_root(&a);

	if (r < 0)
		return r;
	g->report.n_tier += a.freed.n_files;
	if (!a.n_left) {
		r = take(&a, root_fd, SHMS_TIERMARK_FILE);
		if (r == 0 && !g->gone && unlinkat(disk_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
			a.error = shms_error(errno);
	}
	if (r < 0)
		return r;
	action.error = a.error;
	action.tier_bytes = a.freed.disk;
	if (a.error)
		g->report.tier_freed += a.freed.disk; /* what went, went */
	if (a.n_left)
		return shms_gc_tell(g, &action, path, "%s; the directory stays: not all in it is tier files, or may go",
				    why);
	return shms_gc_tell(g, &action, path, "%s", why);
}

static int one_partition(struct shms_gc *g, int disk_fd, const char *name)
{
	struct shms_tiermark_facts facts = {.whole = false};
	struct shms_tiermark mark;
	_free_ char *path = NULL;
	const char *why;
	int r;
	_fd_ int fd = shms_open_dir(disk_fd, name);

	if (fd < 0)
		return fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM ? shms_error(fd) : 0;
	if (asprintf(&path, "%s/%s", g->find.config->path, name) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	r = shms_tiermark_read(fd, &mark);
	if (r == -EMFILE || r == -ENOMEM)
		return r;
	if (r < 0 || strcmp(mark.uuid, name) != 0)
		return shms_gc_kept(g, path, "it looks like the tier of another partition, but does not say of which");
	r = shms_tiermark_of(g->p, &facts.here);
	if (r < 0)
		return shms_gc_kept(g, path, "the tier of another partition: which host this is cannot be told");
	if (strcmp(mark.boot, facts.here.boot) == 0) {
		r = shms_mount_anywhere((dev_t)mark.device, &facts.whole);
		if (r < 0)
			return r;
		facts.mounted = r > 0;
	}
	if (!shms_tiermark_gone(&mark, &facts, &why))
		return shms_gc_kept(g, path, "%s", why);
	return remove_root(g, disk_fd, name, fd, path, why);
}

int shms_gc_away(struct shms_gc *g)
{
	_dir_ DIR *dir = NULL;
	struct dirent *e;
	int r = 0,
	    fd = g->find.config ? open(g->find.config->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK) : -1;

	if (fd < 0)
		return 0;
	dir = fdopendir(fd);
	if (!dir) {
		r = shms_error(errno);
		shms_close_fd(fd);
	}
	while (r == 0 && (e = shms_readdir(dir, &r)) != NULL) {
		/* By a uuid's name. */
		if (strlen(e->d_name) == 36 && strspn(e->d_name, "0123456789abcdef-") == 36 &&
		    strcmp(e->d_name, g->p->uuid) != 0)
			r = one_partition(g, dirfd(dir), e->d_name);
	}
	return r == -EIO ? 0 : r;
}
