/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gcclean.c: what was left half-done in a store's clean/.
 *
 * Between the two exchanges of a stub and an object there is an instant at which clean/ holds the object's file; who is killed then leaves it
 * there, and with it memory that is no object's. A clean copy is one only as long as the object beside it is the one that it was made of: a delete or
 * a replacement that was killed half-way leaves one that is not.
 *
 * Both are seen for an instant while others work too: what looks like garbage is looked at again with the store's names locked, and only
 * then removed. Where nothing looks so, the lock is not asked for.
 */
#include "gcclean.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "format.h"
#include "gcaction.h"
#include "gcstore.h"
#include "name.h"
#include "sys.h"
#include "transient.h"

struct cleaning {
	int objects_fd; /* of our own, for the lock */
	bool locked;
};

/* The generation of the object in the regular file called name. False: it cannot be told now. */
static bool generation_of(int dirfd, const char *name, uint64_t *ret)
{
	struct shms_superblock sb;
	_fd_ int fd = shms_openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);

	if (fd < 0 || shms_pread_all(fd, &sb, sizeof(sb), 0) != sizeof(sb))
		return false;
	*ret = sb.generation;
	return true;
}

/* Why the name in clean/ is garbage; NULL: it is not, as far as can be told. */
static const char *judge(struct shms_gc *g, int objects_fd, int clean_fd, const char *name)
{
	unsigned char key[SHMS_NAME_SIZE];
	struct shms_stub stub;
	uint64_t generation;
	struct stat st, object;
	enum shms_name_kind kind;
	const char *why;
	size_t n;

	kind = shms_name_decode(name, key, &n);
	if ((kind != SHMS_NAME_PLAIN && kind != SHMS_NAME_HASHED) ||
	    fstatat(clean_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return NULL;
	if (S_ISREG(st.st_mode))
		return "an object's second file: who moved it into the disk tier, or out of it, was killed";
	if (!S_ISLNK(st.st_mode) || shms_stub_read(clean_fd, name, &stub, NULL) < 0)
		return NULL;
	if (fstatat(objects_fd, name, &object, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? "a clean copy of an object that is gone" : NULL;
	if (S_ISLNK(object.st_mode))
		return "a clean copy of an object that is not in memory";
	if (shms_tierfind_stub(&g->find, &stub, &why) == -EBADMSG)
		return "a clean copy without its tier file";
	if (generation_of(objects_fd, name, &generation) && generation != stub.generation)
		return "a clean copy of an earlier object of that key";
	return NULL;
}

static int one_name(struct shms_gc *g, struct shms_gc_target *t, int dirfd, const char *name, void *arg)
{
	struct cleaning *c = arg;
	const char *why = judge(g, c->objects_fd, dirfd, name);
	int r;

	if (!why)
		return 0;
	if (!c->locked) {
		r = shms_tier_lock_names(c->objects_fd);
		if (r < 0)
			return shms_gc_kept(
				g, t->c->below,
				"something in its clean/ may be garbage, but another process holds its names");
		c->locked = true;
		why = judge(g, c->objects_fd, dirfd, name);
	}
	return why ? shms_gc_take_one(g, t, dirfd, SHMS_DIR_CLEAN, name, SHMSTORE_GC_TORN, why) : 0;
}

int shms_gc_clean(struct shms_gc *g, struct shms_gc_target *t)
{
	struct cleaning c = {.objects_fd = shms_open_dir(t->fd, SHMS_DIR_OBJECTS)};
	int r;

	if (c.objects_fd == -EMFILE || c.objects_fd == -ENFILE || c.objects_fd == -ENOMEM)
		return shms_error(c.objects_fd);
	if (c.objects_fd < 0)
		return 0;
	r = shms_gc_each_name(g, t, SHMS_DIR_CLEAN, one_name, &c);
	shms_unlock_fd(c.objects_fd);
	return r;
}
