/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierstore.c: stubs as a store's operations meet them. A stub in objects/ is the object's name like any other; what is different is what goes
 * with it (the tier file, with its last name) and that a get has to bring the object back.
 */
#include "tierstore.h"

#include <errno.h>
#include <fcntl.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "detail.h"
#include "promote.h"
#include "space.h"
#include "store.h"
#include "sys.h"
#include "tier.h"

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

int shms_tier_use(struct shmstore *s, int dirfd, const char *name, struct shms_tier_use *ret)
{
	struct stat st;
	int r;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	ret->temporary = st.st_uid != geteuid();
	r = ret->temporary ? shms_tier_open(s->p, st.st_uid, &ret->t) : shms_tier_own(s->p, &ret->t);
	if (r != -ENOENT || !S_ISLNK(st.st_mode))
		return r;
	/* Its directory may be gone for a while only, and that was said. */
	if (!*shmstore_error_detail())
		shms_detail(r, NULL, "the object was demoted, but %s has no disk tier any more",
			    shmstore_partition_path(s->p));
	return -EBADMSG;
}

void shms_tier_unuse(struct shms_tier_use *u)
{
	if (u->temporary)
		shms_tier_close(u->t);
}

static int fetch(struct shmstore *s, struct shms_tier *t, const char *name, struct shms_aside *ret)
{
	struct shms_promote p = {.t = t, .s = s, .name = name, .no_evict = true, .no_wait = true};
	int r, full;

	/* Who only looks leaves the store as it is. */
	if (s->readonly)
		return shms_promote_aside(t, s->objects_fd, name, true, ret);
	r = full = shms_promote(&p);
	if (!shms_space_wanted(r))
		return r;
	/* No room: the tier file itself, where it can be mapped; else others have to go first. */
	r = shms_promote_aside(t, s->objects_fd, name, false, ret);
	if (r == -EINVAL)
		return 0; /* in memory by now */
	if (r != -ENOSPC)
		return r;
	p.no_evict = p.no_wait = false;
	r = shms_promote(&p);
	return shms_space_wanted(r) ? full : r;
}

int shms_tier_fetch(struct shmstore *s, const char *name, struct shms_aside *ret)
{
	struct shms_tier_use u;
	int r;

	ret->fd = -1;
	r = shms_tier_use(s, s->objects_fd, name, &u);
	if (r < 0)
		return r;
	r = fetch(s, u.t, name, ret);
	shms_tier_unuse(&u);
	return r == -EINVAL ? 0 : r;
}

void shms_tier_touch(struct shmstore *s, int fd)
{
	static const struct timespec NOW[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};

	/* Another user's file, or a kernel that refuses: it looks older than it is, no more. */
	if (atomic_load_explicit(&s->tier_on, memory_order_relaxed) && futimens(fd, NOW) < 0)
		return;
}
