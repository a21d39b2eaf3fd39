/* SPDX-License-Identifier: Apache-2.0 */
/* tierstore.c: see tierstore.h. */
#include "tierstore.h"

#include <errno.h>
#include <fcntl.h>
#include <shmstore/shmstore.h>
#include <sys/stat.h>
#include <unistd.h>

#include "detail.h"
#include "handle.h"
#include "promote.h"
#include "room.h"
#include "sys.h"
#include "tier.h"

int shms_tier_use(struct shmstore *s, int dirfd, const char *name, struct shms_tier_use *ret)
{
	struct stat st;
	int r;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	ret->temporary = st.st_uid != geteuid();
	r = ret->temporary ? shms_tier_open(s->p, st.st_uid, &ret->t)
			   : shms_tier_own(s->p, &ret->t);
	if (r != -ENOENT || !S_ISLNK(st.st_mode))
		return r;
	/* The directory may come back: a delete of the key would lose the object. */
	if (shms_detail_is(-ENOENT))
		return shms_detail_becomes(-EIO);
	return shms_detail(-EBADMSG, NULL,
			   "the object was demoted, but %s has no disk tier any more", s->p->path);
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

	/* A read-only handle leaves the store as it is. */
	if (s->readonly)
		return shms_promote_aside(t, s->objects_fd, name, true, ret);
	r = full = shms_promote(&p);
	if (!shms_room_wanted(r))
		return r;
	/* No room: the tier file itself, where it can be mapped; else others have to go first. */
	r = shms_promote_aside(t, s->objects_fd, name, false, ret);
	if (r == -EINVAL)
		return 0; /* in memory by now */
	if (r != -ENOSPC)
		return r;
	p.no_evict = p.no_wait = false;
	r = shms_promote(&p);
	return shms_room_wanted(r) ? full : r;
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
