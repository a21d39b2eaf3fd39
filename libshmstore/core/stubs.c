/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stubs.c: stubs as a store's names. A stub in objects/ is the object's name like any other; what
 * differs is what goes with it: the tier file, with the stub's last name.
 */
#include "stubs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "handle.h"
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

void shms_tier_touch(struct shmstore *s, int fd)
{
	static const struct timespec NOW[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};

	/* Another user's file, or a kernel that refuses: it looks older than it is, no more. */
	if (atomic_load_explicit(&s->tier_on, memory_order_relaxed) && futimens(fd, NOW) < 0)
		return;
}
