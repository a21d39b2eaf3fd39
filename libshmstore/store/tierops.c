/* SPDX-License-Identifier: Apache-2.0 */
/* tierops.c: the calls that move one object, ask where it is, or pin it. */
#include <errno.h>
#include <fcntl.h>
#include <shmstore/shmstore.h>
#include <sys/stat.h>

#include "candidates.h"
#include "cleanup.h"
#include "credit.h"
#include "demote.h"
#include "detail.h"
#include "filemode.h"
#include "nameslock.h"
#include "packed.h"
#include "parts.h"
#include "publish.h"
#include "sys.h"
#include "tier.h"

#define LOCK_MS 10000u /* for the eviction that is going on */

static int begin(struct shmstore *s, const void *key, size_t key_size, struct shms_keyname *k)
{
	int r = shms_keyname_init(k, key, key_size);

	if (r == 0)
		r = shms_key_find(s->objects_fd, k);
	return r < 0 ? r : 0;
}

int shmstore_locate(struct shmstore *s, const void *key, size_t key_size)
{
	struct shms_keyname k;
	struct stat st;
	int r = begin(s, key, key_size, &k);

	if (r < 0)
		return r;
	if (s->readonly ? shms_peek_has(s, &k) : shms_packed_has(s, &k))
		return SHMSTORE_IN_MEMORY;
	if (fstatat(s->objects_fd, k.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : shms_error(errno);
	return S_ISLNK(st.st_mode) ? SHMSTORE_IN_TIER : SHMSTORE_IN_MEMORY;
}

/* Makes the object a file, as a disk tier and a foreign pin need. leased: a promised one, too. */
static int begin_file(struct shmstore *s, const void *key, size_t key_size, bool leased,
		      struct shms_keyname *k)
{
	struct shms_pack *pack = shms_packed_pack(s);
	int r = begin(s, key, key_size, k);

	if (r == 0 && !leased && pack &&
	    shms_pack_promised(pack, k->key, k->key_size, shms_now_boot_ms()))
		r = shms_detail(
			-EPERM, NULL,
			"the object is leased, and stays in memory until that is taken or ends");
	else if (r == 0 && !s->readonly)
		r = shms_put_as_file(s, k);
	else if (r == 0 && shms_peek_has(s, k))
		r = shms_detail(-EPERM, NULL,
				"an object of %s is packed with others, and its store's own "
				"process alone can move it: shmstore-admin evict asks it to; of a "
				"store without a process, open it and demote the object",
				s->path);
	if (r == 0)
		r = shms_key_find(s->objects_fd, k);
	return r < 0 ? r : 0;
}

/* ---- demote ---------------------------------------------------------------------------------- */

/* One name, of ours or of a store that we only look at. */
static int demote_single(struct shmstore *s, struct shms_tier *t, const char *name)
{
	struct shms_demote_name n = {.name = name, .s = s->readonly ? NULL : s};
	_fd_ int clean_fd = shms_open_dir(s->objects_fd, "../" SHMS_DIR_CLEAN);
	_fd_ int objects_fd = openat(s->objects_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct shms_demote d = {.t = t, .names = &n, .n_names = 1, .mapped = true};

	if (objects_fd < 0)
		return -errno;
	if (clean_fd < 0)
		return clean_fd == -ENOENT
			       ? shms_detail(-EPERM, NULL,
					     "the store's owner does not take part in the tier: it "
					     "was opened before there was one, and has not put or "
					     "deleted anything since")
			       : clean_fd;
	n.objects_fd = objects_fd;
	n.clean_fd = clean_fd;
	/* Under the store's own lock its own description is the one that is flocked. */
	if (n.s)
		n.objects_fd = s->objects_fd;
	return shms_demote_one(&d);
}

/* All the names that the inode has, by a walk of the partition. Several stores' locks are held at
 * once, so one at a time does this. */
static int demote_all(struct shmstore *s, struct shms_tier *t, uint64_t inode)
{
	const struct shms_evict_user user = {.uid = t->uid, .t = t};
	struct shms_demote d = {.t = t, .mapped = true};
	struct shms_candidates found;
	int lock_fd, r = shms_tier_lock(t, LOCK_MS, NULL, NULL, &lock_fd);

	if (r == -EBUSY)
		return shms_detail(-ETIMEDOUT, s->p->path,
				   "the disk tier of %s is busy: other evictions of this user's "
				   "objects went on for %u s, or one was stopped",
				   s->p->path, LOCK_MS / 1000);
	if (r < 0)
		return r;
	r = shms_candidates_find(s->p, &user, 1, 0, inode, &found);
	if (r == 0) {
		r = found.n ? shms_candidates_names(&found, 0, NULL, &d) : -EAGAIN;
		r = r == -ENOENT ? -EAGAIN : r; /* a store has gone meanwhile */
		if (r == 0)
			r = shms_demote_one(&d);
		if (found.n)
			shms_candidates_names_end(&found, 0, &d);
		shms_candidates_deinit(&found);
	}
	shms_tier_unlock(t, lock_fd);
	return r;
}

static int demote(struct shmstore *s, const char *name)
{
	struct shms_tier *t;
	struct stat st;
	int r;

	if (fstatat(s->objects_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!shms_tier_there(s->p))
		return shms_detail(-ENOENT, s->p->path,
				   "%s has no disk tier; shmstore-admin tier --set gives it one",
				   s->p->path);
	if (!s->readonly) {
		r = shms_tier_join(s);
		if (r < 0)
			return r;
	}
	if (S_ISLNK(st.st_mode))
		return 0;
	r = shms_tier_use(s, name, &t);
	if (r < 0)
		return r;
	r = st.st_nlink == 1 ? demote_single(s, t, name) : demote_all(s, t, st.st_ino);
	shms_tier_done(t);
	return r;
}

int shmstore_demote(struct shmstore *s, const void *key, size_t key_size, unsigned flags)
{
	struct shms_keyname k;
	int r = begin_file(s, key, key_size, false, &k);

	if (r < 0)
		return r;
	if (flags)
		return shms_detail_flags(flags, 0u);
	r = demote(s, k.name);
	/* Handed over meanwhile it has more names now, and a copy on the disk;
	 * replaced, it is another one. */
	if (r == -EAGAIN)
		r = demote(s, k.name);
	/* It may be what the daemon asked for. */
	if (!s->readonly)
		shms_credit_tend(s);
	/* Somebody else may have demoted it meanwhile. */
	if (r == -EAGAIN && shms_stub_is(s->objects_fd, k.name))
		return 0;
	return r == -EAGAIN ? -EPERM : shms_error(r);
}

/* ---- promote --------------------------------------------------------------------------------- */

int shmstore_promote(struct shmstore *s, const void *key, size_t key_size, unsigned flags)
{
	struct shms_keyname k;
	struct stat st;
	int r = begin(s, key, key_size, &k);

	if (r < 0)
		return r;
	if (flags & ~SHMSTORE_NO_EVICT)
		return shms_detail_flags(flags, SHMSTORE_NO_EVICT);
	if (shms_packed_has(s, &k))
		return 0;
	if (fstatat(s->objects_fd, k.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return shms_error(errno);
	if (!S_ISLNK(st.st_mode))
		return 0;
	r = shms_promote(&(struct shms_promote){
		.s = s, .name = k.name, .no_evict = (flags & SHMSTORE_NO_EVICT) != 0});
	return r > 0 ? r : shms_error(r);
}

/* ---- pin ------------------------------------------------------------------------------------- */

/* Its readers' rights stay as they are. */
static int put_pin(const struct shmstore *s, int fd, bool pin)
{
	struct stat st;
	int r = shms_file_hold(s, fd, SHMS_FILE_HOLD_MS, &st);

	if (r < 0)
		return r;
	return fchmod(fd, (st.st_mode & 0777) | (pin ? S_ISVTX : 0)) < 0 ? -errno : 0;
}

static int set_pin(struct shmstore *s, const char *name, bool pin)
{
	struct stat st, named;
	int r;
	_fd_ int fd = shms_names_open(s, name);

	if (fd < 0)
		return fd;
	r = put_pin(s, fd, pin);
	if (r < 0 || !pin)
		return r;
	/* Its file must not come back as another object's, pinned still. */
	shms_recycle_forget(s, name);
	/* A demotion exchanges the name first, and looks at the pin afterwards. */
	return fstat(fd, &st) == 0 &&
			       fstatat(s->objects_fd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
			       named.st_ino == st.st_ino
		       ? 0
		       : -EAGAIN;
}

/* The name is a stub: in memory, and pinned, the object may be all the same, brought
 * back by another of its names. */
static int unpin_resident(struct shmstore *s, const char *name)
{
	struct shms_tier *t;
	struct shms_stub stub;
	int r = shms_stub_read(s->objects_fd, name, &stub, NULL);

	if (r == 0)
		r = shms_tier_use(s, name, &t);
	if (r < 0)
		return r == -EINVAL ? -EAGAIN : r; /* no stub any more */
	_fd_ int fd = shms_tier_resident_open(t, stub.id);
	if (fd < 0)
		r = fd == -ENOENT ? 0 : fd;
	else
		r = put_pin(s, fd, false);
	shms_tier_done(t);
	return r;
}

/* False: the key is no packed object's, or that is pinned as a file. */
static bool pin_packed(struct shmstore *s, const struct shms_keyname *k, bool pin)
{
	struct shms_pack *pack = shms_packed_pack(s);
	int r;

	if (!pack || shms_names_lock(s) < 0)
		return false;
	/* A stub or file that takes the key comes before, or sees the pin (shms_pack_is()). */
	r = shms_pack_pin(pack, k->key, k->key_size, pin);
	shms_names_unlock(s);
	return r == 0;
}

int shmstore_pin(struct shmstore *s, const void *key, size_t key_size, bool pin)
{
	struct shms_tries t = {0};
	struct shms_keyname k;
	int r = shms_keyname_key(&k, key, key_size);

	if (r == 0 && pin_packed(s, &k, pin))
		return 0;
	if (r == 0)
		r = begin_file(s, key, key_size, true, &k);
	if (r < 0)
		return r;
	for (int i = 0; i < 100; i++) {
		r = set_pin(s, k.name, pin);
		if (r == -ELOOP && !pin)
			r = unpin_resident(s, k.name);
		if (r == -EAGAIN) {
			errno = EAGAIN; /* a stub no more is none of the kernel's */
			if (shms_open_again(&t))
				continue;
			r = -errno;
		}
		if (r != -ELOOP)
			return shms_error(r);
		r = shmstore_promote(s, key, key_size, 0);
		if (r != 0)
			return r;
	}
	return -ETIMEDOUT;
}
