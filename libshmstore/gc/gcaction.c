/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gcaction.c: what every part of gc does: says what it did, and takes names away.
 */
#include "gcaction.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alloc.h"
#include "cleanup.h"
#include "detail.h"
#include "partition.h"
#include "refused.h"
#include "sys.h"

const char *shmstore_gc_what_name(enum shmstore_gc_what what)
{
	static const char *const names[] = {
		[SHMSTORE_GC_STORE] = "store",     [SHMSTORE_GC_LEASE] = "lease",
		[SHMSTORE_GC_TORN] = "torn",       [SHMSTORE_GC_POOL] = "pool",
		[SHMSTORE_GC_PEER] = "peer",       [SHMSTORE_GC_KEPT] = "kept",
		[SHMSTORE_GC_TIER] = "tier",       [SHMSTORE_GC_ANCHOR] = "anchor",
		[SHMSTORE_GC_TIER_OF] = "tier-of",
	};

	return what >= SHMSTORE_GC_STORE && what <= SHMSTORE_GC_TIER_OF ? names[what] : "other";
}

int shms_gc_tell(struct shms_gc *g, struct shmstore_gc_action *a, const char *below,
		 const char *format, ...)
{
	char evidence[512];
	_free_ char *path = NULL;
	bool whole = below[0] == '/';
	va_list args;

	if (!a->error) {
		g->report.freed += a->bytes;
		g->report.tier_freed += a->tier_bytes;
	}
	if (!g->fn && (!a->error || g->error))
		return 0;
	va_start(args, format);
	vsnprintf(evidence, sizeof(evidence), format, args);
	va_end(args);
	path = shms_printed("%s%s%s", whole ? "" : g->p->path, whole ? "" : "/", below);
	if (!path)
		return -ENOMEM;
	if (a->error && !g->error)
		g->error = shms_detail(a->error, path, "%s: %s", path,
				       a->what == SHMSTORE_GC_KEPT ? evidence
								   : shmstore_strerror(a->error));
	if (!g->fn)
		return 0;
	a->size = sizeof(*a);
	a->path = path;
	a->evidence = evidence;
	return g->fn(a, g->arg);
}

int shms_gc_unsure(struct shms_gc *g, const char *below, uid_t uid, int error, const char *cannot)
{
	struct shmstore_gc_action a = {.what = SHMSTORE_GC_KEPT};
	char names[SHMS_REFUSED_TEXT];
	const char *refused;

	if ((error == -EPERM || error == -EACCES) && geteuid() != 0 && geteuid() != uid)
		return shms_gc_tell(g, &a, below, "it belongs to user %u: we may not %s",
				    (unsigned)uid, cannot);
	a.error = shms_error(error);
	refused = shms_refused_names(names);
	return shms_gc_tell(g, &a, below, "we cannot %s: %s%s", cannot,
			    refused ? "refused to this process: " : "",
			    refused ? refused : strerror(-error));
}

int shms_gc_take(struct shms_gc *g, int dirfd, const char *name, struct shms_tierdrop *ret)
{
	struct shms_tier *t;
	struct stat st;

	*ret = (struct shms_tierdrop){0};
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return shms_error(errno);
	t = S_ISLNK(st.st_mode) ? shms_tierfind_user(&g->find, st.st_uid) : NULL;
	return shms_tierdrop_name(t, g->gone, dirfd, name, &st, ret);
}

int shms_gc_freed(struct shms_gc *g, struct shmstore_gc_action *a,
		  const struct shms_tierdrop *freed, const char *below, const char *evidence)
{
	if (a->error == -ENOENT)
		return 0; /* its receiver, owner or another gc was faster */
	if (a->error == -ENOMEM)
		return a->error;
	a->bytes = freed->memory;
	a->tier_bytes = freed->disk;
	if (!a->error) {
		g->report.n_tier += freed->n_files;
		*(a->what == SHMSTORE_GC_LEASE ? &g->report.n_leases : &g->report.n_objects) +=
			a->n_objects;
	}
	return shms_gc_tell(g, a, below, "%s", evidence);
}

int shms_gc_remove(struct shms_gc *g, struct shmstore_gc_action *a, int dirfd, const char *name,
		   const char *below, const char *evidence)
{
	struct shms_tierdrop freed;

	a->error = shms_gc_take(g, dirfd, name, &freed);
	return shms_gc_freed(g, a, &freed, below, evidence);
}

int shms_gc_take_file(struct shms_gc *g, int files_fd, const char *name, struct shms_tierdrop *ret)
{
	struct stat st;

	*ret = (struct shms_tierdrop){0};
	if (fstatat(files_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return shms_error(errno);
	if (S_ISDIR(st.st_mode))
		return shms_error(EISDIR);
	if (!g->gone && unlinkat(files_fd, name, 0) < 0)
		return shms_error(errno);
	ret->disk = shms_blocks(&st);
	ret->n_files = 1;
	return 0;
}

bool shms_gc_half_made(int dirfd, const char *name)
{
	_fd_ int fd =
		openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	return fd >= 0 && shms_unused(fd);
}

void shms_gc_odd_note(struct shms_gc_odd *o, const char *name)
{
	if (o->n++ == 0)
		snprintf(o->name, sizeof(o->name), "%s", name);
}

int shms_gc_odd_tell(struct shms_gc *g, const struct shms_gc_odd *o, const char *below)
{
	_free_ char *path = NULL;

	if (!o->n || !g->fn)
		return 0;
	path = shms_printed("%s/%s", below, o->name);
	if (!path)
		return -ENOMEM;
	if (o->n > 1)
		return shms_gc_kept(g, path,
				    "not a name that we make, nor are %llu others beside it",
				    o->n - 1);
	return shms_gc_kept(g, path, "not a name that we make");
}
