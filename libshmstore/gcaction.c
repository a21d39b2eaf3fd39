/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gcaction.c: what every part of gc does: says what it did, and takes names away.
 *
 * A dry run removes nothing: it counts in a set of inodes which names would be gone, so that the last of several is the one that
 * frees the bytes, as it would be in a run.
 */
#include "gcaction.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "inodes.h"
#include "partition.h"
#include "sys.h"

const char *shmstore_gc_what_name(enum shmstore_gc_what what)
{
	static const char *const names[] = {
		[SHMSTORE_GC_STORE] = "store", [SHMSTORE_GC_LEASE] = "lease", [SHMSTORE_GC_TORN] = "torn",
		[SHMSTORE_GC_POOL] = "pool",   [SHMSTORE_GC_PEER] = "peer",   [SHMSTORE_GC_KEPT] = "kept",
	};

	return what >= SHMSTORE_GC_STORE && what <= SHMSTORE_GC_KEPT ? names[what] : "other";
}

int shms_gc_tell(struct shms_gc *g, struct shmstore_gc_action *a, const char *below, const char *format, ...)
{
	char evidence[512];
	_free_ char *path = NULL;
	va_list args;

	if (!a->error)
		g->report.freed += a->bytes;
	if (!g->fn)
		return 0;
	va_start(args, format);
	vsnprintf(evidence, sizeof(evidence), format, args);
	va_end(args);
	if (asprintf(&path, "%s/%s", g->p->path, below) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	a->size = sizeof(*a);
	a->path = path;
	a->evidence = evidence;
	return g->fn(a, g->arg);
}

int shms_gc_take(struct shms_gc *g, int dirfd, const char *name, uint64_t *ret_bytes)
{
	struct shms_inode *i;
	struct stat st;

	*ret_bytes = 0;
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return shms_error(errno);
	if (!g->gone) {
		if (unlinkat(dirfd, name, 0) < 0)
			return shms_error(errno);
		if (st.st_nlink == 1)
			*ret_bytes = shms_blocks(&st);
		return 0;
	}
	if (S_ISDIR(st.st_mode))
		return shms_error(EISDIR);
	i = shms_inodes_get(g->gone, st.st_ino);
	if (!i)
		return -ENOMEM;
	if (++i->n_gone == st.st_nlink)
		*ret_bytes = shms_blocks(&st);
	return 0;
}

int shms_gc_names(int fd, const char *name, DIR **ret)
{
	int dir = shms_open_beneath(fd, name, O_RDONLY | O_DIRECTORY);

	*ret = NULL;
	if (dir < 0)
		return dir == -EMFILE || dir == -ENFILE || dir == -ENOMEM ? shms_error(dir) : 0;
	*ret = fdopendir(dir);
	if (!*ret) {
		shms_close_fd(dir);
		return -ENOMEM;
	}
	return 0;
}
