/* SPDX-License-Identifier: Apache-2.0 */
/*
 * get.c: from a key to a view: open, the size, one pread of the header, mmap, close.
 *
 * The look-up happens under store.names, shared: a file that is being opened is not recycled under
 * us. A read-only handle shares no lock with the owner; it looks again after the open whether the
 * name still means this file: from then on the open file itself keeps the owner from recycling it.
 */
#include <errno.h>
#include <fcntl.h>
#include <shmstore/shmstore.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "detail.h"
#include "nameslock.h"
#include "object.h"
#include "packed.h"
#include "packgive.h"
#include "parts.h"
#include "publish.h"
#include "sys.h"
#include "view.h"

#define DEMOTED_AGAIN 100
#define TURNS         1000

/* Opens the object for somebody who shares no lock with its owner. */
static int open_foreign(struct shmstore *s, const char *name)
{
	struct stat mine, named;

	for (int i = 0; i < TURNS; i++) {
		_fd_ int fd = shms_names_open(s, name);

		if (fd < 0)
			return fd;
		if (fstat(fd, &mine) < 0 ||
		    fstatat(s->objects_fd, name, &named, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
		if (mine.st_ino == named.st_ino)
			return shms_take_fd(&fd);
	}
	return -ETIMEDOUT; /* another file each time */
}

/* A hashed name says only that the keys' hashes are equal, and the object's own key may be another
 * than the one that it is held under. */
static int check_key(struct shmstore *s, const struct shms_keyname *k, const struct shms_header *h)
{
	unsigned char key[SHMSTORE_KEY_MAX];
	size_t size;
	int r = shms_entry_key(s->objects_fd, k->name, h, key, &size);

	if (r < 0)
		return r;
	return size == k->key_size && memcmp(key, k->key, size) == 0 ? 0 : -ENOENT;
}

/* The file's size and owner. Where nobody else can enter, only the size is asked: cheaper. */
static int ask_file(const struct shmstore *s, int fd, uid_t *io_uid, uint64_t *ret_size)
{
	struct stat st;
	off_t size;

	if (s->p->open_to_others) {
		if (fstat(fd, &st) < 0)
			return -errno;
		if (!S_ISREG(st.st_mode))
			return -EBADMSG;
		*io_uid = st.st_uid;
		*ret_size = (uint64_t)st.st_size;
		return 0;
	}
	/* A file that cannot seek is no object. */
	size = shms_seek(fd, 0, SEEK_END);
	*ret_size = (uint64_t)size;
	return size >= 0 ? 0 : size == -ENOSYS ? -ENOSYS : -EBADMSG;
}

/*
 * Opens the object of that name wherever its bytes are: sets io_file's fd and offset. The
 * name of a demoted one is a symbolic link: it is brought back, or read where it is. 0,
 * -errno, an outcome of the arbiter.
 */
static int open_object(struct shmstore *s, const char *name, struct shms_view_file *io_file,
		       uint64_t *ret_size)
{
	struct stat st;
	int r;

	io_file->uid = s->uid;

	for (int i = 0; i < DEMOTED_AGAIN; i++) {
		_fd_ int fd = s->readonly ? open_foreign(s, name) : shms_names_open(s, name);

		if (fd >= 0) {
			r = ask_file(s, fd, &io_file->uid, ret_size);
			shms_tier_touch(s, fd);
			if (r < 0)
				return r;
			io_file->fd = shms_take_fd(&fd);
			return 0;
		}
		if (fd != -ELOOP)
			return fd;
		r = shms_promote_fetch(s, name, io_file, ret_size);
		if (r == 0 && io_file->fd >= 0 && s->p->open_to_others &&
		    fstat(io_file->fd, &st) == 0)
			io_file->uid = st.st_uid;
		if (r != 0 || io_file->fd >= 0)
			return r;
	}
	return -ENOSPC; /* each time it was demoted again before it was open */
}

/* *ret_key: it is the key that is wrong. */
static int get_once(struct shmstore *s, const struct shms_keyname *k, unsigned flags,
		    struct shmstore_view **ret, bool *ret_key)
{
	struct shms_object object;
	struct shmstore_view *v;
	struct shms_header h;
	struct shms_view_file f = {.cow = (flags & SHMSTORE_COW) != 0};
	uint64_t size = 0;
	int r = open_object(s, k->name, &f, &size);
	_fd_ int fd = r == 0 ? f.fd : -1;

	*ret_key = false;
	if (r != 0)
		return r;
	r = shms_header_read_at(&h, fd, f.offset, size, NULL);
	if (r < 0)
		return r;
	object = h.object;
	if (k->kind == SHMS_NAME_HASHED)
		r = check_key(s, k, &h);
	*ret_key = r == -EBADMSG;
	if (r == 0)
		r = shms_view_new(s, &f, &h, k->key, k->key_size, &v);
	if (r < 0) {
		shms_header_deinit(&h);
		return r;
	}
	if ((flags & SHMSTORE_VERIFY) && object.checksum && v->map &&
	    !shms_format_verify_buffers(&object, (const char *)v->map + v->header_size)) {
		shmstore_view_unref(v);
		return -EBADMSG;
	}
	*ret = v;
	return 0;
}

static int get_packed(struct shmstore *s, const struct shms_keyname *k, unsigned flags,
		      struct shmstore_view **ret)
{
	struct shms_pack_view packed;
	int r;

	if (s->readonly)
		return shms_peek_get(s, k, flags, ret);
	r = shms_packed_get(s, k, &packed);
	return r < 0 ? r : shms_view_packed(s, &packed, flags, k->key, k->key_size, ret);
}

/*
 * An object whose name is hashed may be another key's first; the sidecar says so. While we look,
 * its owner deletes the name, then the sidecar: what we have open is not damaged, it is gone. And
 * the name may be another key's: then ours is under its second one, if anywhere.
 */
static int get(struct shmstore *s, struct shms_keyname *k, unsigned flags,
	       struct shmstore_view **ret)
{
	bool key = false;
	int found, r = get_once(s, k, flags, ret, &key);

	if (k->kind != SHMS_NAME_HASHED)
		return r;
	for (int i = 0; i < TURNS && (r == -ENOENT || (r == -EBADMSG && key)); i++) {
		found = shms_key_find(s->objects_fd, k);
		if (found != 1)
			return found == 0 ? -ENOENT : found;
		r = get_once(s, k, flags, ret, &key);
	}
	return r == -ENOENT ? -ETIMEDOUT : r; /* it was there each time that it was looked for */
}

/* In this order: a packed object that becomes a file is both for a moment, and never neither. */
static int get_any(struct shmstore *s, struct shms_keyname *k, unsigned flags,
		   struct shmstore_view **ret)
{
	int r = get_packed(s, k, flags, ret);

	if (r != -ENOENT)
		return r;
	shms_keyname_name(k);
	return get(s, k, flags, ret);
}

int shmstore_get(struct shmstore *s, const void *key, size_t key_size, unsigned flags,
		 struct shmstore_view **ret)
{
	struct shms_keyname k;
	bool again = false;
	int r;

	if (!ret || (flags & ~(SHMSTORE_COW | SHMSTORE_VERIFY)))
		return !ret ? shms_detail_null("ret")
			    : shms_detail_flags(flags, SHMSTORE_COW | SHMSTORE_VERIFY);
	r = shms_keyname_key(&k, key, key_size);
	if (r < 0)
		return r;
	shms_packgive(s);
	r = get_any(s, &k, flags, ret);
	if (r == -ENOENT && s->readonly) {
		r = shms_renew(s, &again);
		r = r < 0 ? r : again ? get_any(s, &k, flags, ret) : -ENOENT;
	}
	if (r != 0)
		return r > 0 ? r : shms_error(r);
	shms_count(&s->ledger->get_n, 1);
	shms_count(&s->ledger->get_bytes, (*ret)->header_size + (*ret)->buffer_size);
	shms_view_told(s);
	return 0;
}

static int contains(struct shmstore *s, struct shms_keyname *k)
{
	int r = s->readonly ? shms_peek_has(s, k) : shms_packed_has(s, k);

	if (r != 0)
		return r < 0 ? shms_error(r) : 1;
	shms_keyname_name(k);
	if (k->kind == SHMS_NAME_HASHED)
		return shms_key_find(s->objects_fd, k);
	if (shms_lookup(s->objects_fd, k->name) == 0)
		return 1;
	return errno == ENOENT ? 0 : shms_error(errno);
}

int shmstore_contains(struct shmstore *s, const void *key, size_t key_size)
{
	struct shms_keyname k;
	bool again = false;
	int r = shms_keyname_key(&k, key, key_size);

	if (r < 0)
		return r;
	r = contains(s, &k);
	if (r == 0 && s->readonly) {
		r = shms_renew(s, &again);
		if (r == 0 && again)
			r = contains(s, &k);
	}
	return r;
}
