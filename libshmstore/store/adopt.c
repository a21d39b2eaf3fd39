/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adopt.c: takes the object of a ticket into a store.
 *
 * Ticket and file are a peer's: input. The path must lie in our partition by its text, and its
 * directory is opened so that the kernel refuses what the text hides (symlinks, other mounts).
 * Where others may enter the partition, the directory must be our user's, and only our user's to
 * write: so nobody else can put another file in the place of the one that is checked. The open
 * descriptor is what is checked: type, owner, size, header. Only then the lease is moved into
 * objects/: one rename consumes it and makes it ours, so that a ticket is good for one adoption and
 * a kill leaves either the lease or the object.
 * A path to an object in a store's objects/ is taken too (a peer of the same user may name it), by
 * a link; never one in recycle/, whose bytes are about to change.
 *
 * A file of another user comes by one way only: as a lease in our own inbox, where shmstored put it
 * because the operator's rules allow it. Its owner is trusted not to change it; we can only read
 * it: not link it again (fs.protected_hardlinks), not recycle it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "detail.h"
#include "nameslock.h"
#include "object.h"
#include "pack.h"
#include "packed.h"
#include "packgive.h"
#include "publish.h"
#include "room.h"
#include "sys.h"
#include "tier.h"
#include "tierformat.h"
#include "wire.h"

#define CHUNK 65536u
#define TRIES 8

enum kind {
	KIND_LEASE,
	KIND_INBOX, /* a lease in our own inbox: may be another user's file */
	KIND_OBJECT,
	KIND_PACKED /* a lease on a packed object */
};

/* The file that a ticket names, in an open directory of ours. */
struct source {
	enum kind kind;
	const char *path;              /* below the partition */
	const char *name;              /* in dir_fd: its last component, or all of it */
	struct shms_packticket packed; /* of KIND_PACKED */
	int dir_fd;                    /* the file's directory, or the partition's */
	struct stat st;
};

/* Is the last component but one of that name? */
static bool in_dir(const char *path, const char *last, const char *dir)
{
	size_t n = strlen(dir);

	return (size_t)(last - path) > n + 1 && last[-1] == '/' &&
	       strncmp(last - 1 - n, dir, n) == 0 && last[-2 - (ssize_t)n] == '/';
}

/* Is every component a plain name? */
static bool plain_path(const char *path, size_t length)
{
	const char *end = path + length, *slash;

	for (; path <= end; path = slash + 1) {
		size_t n;

		slash = memchr(path, '/', (size_t)(end - path));
		slash = slash ? slash : end;
		n = (size_t)(slash - path);
		if (n == 0 || (n == 1 && path[0] == '.') ||
		    (n == 2 && path[0] == '.' && path[1] == '.'))
			return false;
	}
	return true;
}

/* Is the path that of a lease in our own inbox, inbox/<uid>/handoff/<lease>? */
static SHMS_ASIDE bool in_inbox(const struct shmstore *s, const char *path, const char *last)
{
	char own[64];
	int n = snprintf(own, sizeof(own), SHMS_DIR_INBOX "/%u/" SHMS_DIR_HANDOFF "/",
			 (unsigned)s->uid);

	return last - path == n && strncmp(path, own, (size_t)n) == 0;
}

/* The ticket's path relative to the partition, and what it is. */
static int check_path(const struct shmstore *s, const struct shmstore_ticket *t, struct source *ret)
{
	size_t n = strlen(s->p->path), length = strnlen(t->path, sizeof(t->path));
	const char *path, *last;
	bool packed;
	uint64_t expiry;

	if (length == sizeof(t->path))
		return shms_detail(-EINVAL, NULL, "the ticket's path does not end");
	if (strncmp(t->path, s->p->path, n) != 0 || t->path[n] != '/')
		return shms_detail(-EPERM, NULL,
				   "the ticket's path %.256s is not in the partition %s", t->path,
				   s->p->path);
	path = t->path + n + 1;
	length -= n + 1;
	packed = shms_packticket_parse(path, length, &ret->packed) == 0;
	/* Of a packed object's path, only the store's directory can be other than plain. */
	if (length && !plain_path(path, packed ? shms_packticket_store(&ret->packed) : length))
		return shms_detail(-EPERM, NULL, "the ticket's path %.256s goes by . or ..",
				   t->path);
	if (packed) {
		ret->kind = KIND_PACKED;
		ret->path = path;
		ret->name = path + ret->packed.link_length + 1;
		return 0;
	}
	last = memrchr(path, '/', length);
	if (!last)
		return shms_detail(-EPERM, NULL,
				   "the ticket's path %.256s is neither a lease nor an object",
				   t->path);
	last++;
	if (in_dir(path, last, SHMS_DIR_HANDOFF) && shms_lease_parse(last, &expiry)) {
		if (expiry <= shms_now_boot_ms())
			return shms_detail(-ESTALE, NULL, "the lease %.256s has expired", t->path);
		ret->kind = in_inbox(s, path, last) ? KIND_INBOX : KIND_LEASE;
	} else if (in_dir(path, last, SHMS_DIR_OBJECTS)) {
		ret->kind = KIND_OBJECT;
	} else {
		return shms_detail(-EPERM, NULL,
				   "the ticket's path %.256s is neither a lease nor an object",
				   t->path);
	}
	ret->path = path;
	ret->name = last;
	return 0;
}

/* Opens the directory that the file is in: ours, and ours alone to write. */
static int open_directory(const struct shmstore *s, const struct source *from)
{
	char path[SHMSTORE_TICKET_PATH];
	size_t n = (size_t)(from->name - from->path) - 1;
	struct stat st;
	int r;

	memcpy(path, from->path, n);
	path[n] = '\0';
	_fd_ int fd = shms_open_beneath(s->p->fd, path, O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		return fd;
	r = fstat(fd, &st) < 0 ? -errno : 0;
	if (r == 0 && (st.st_uid != s->uid || (st.st_mode & 022)))
		r = shms_detail(-EPERM, NULL, "%.256s is user %u's, or others may write there",
				path, (unsigned)st.st_uid);
	return r < 0 ? r : shms_take_fd(&fd);
}

static int check_file(const struct shmstore *s, int fd, const struct shmstore_ticket *t,
		      struct source *from, struct shms_header *h)
{
	struct stat *st = &from->st;
	int r;

	if (fstat(fd, st) < 0)
		return -errno;
	if (!S_ISREG(st->st_mode))
		return shms_detail(-EBADMSG, NULL, "%.256s is no regular file", t->path);
	if (st->st_dev != s->p->device)
		return shms_detail(-EXDEV, NULL, "%.256s is on another mount than %s", t->path,
				   s->p->path);
	if (st->st_uid != s->uid && from->kind != KIND_INBOX)
		return shms_detail(
			-EPERM, NULL,
			"%.256s is user %u's: only shmstore_handoff_to() hands it to others",
			t->path, (unsigned)st->st_uid);
	if (t->header_size > (uint64_t)st->st_size ||
	    (uint64_t)st->st_size - t->header_size != t->buffer_size)
		return shms_detail(-EBADMSG, NULL,
				   "%.256s has %" PRIu64 " bytes, and the ticket says %" PRIu64
				   " + %" PRIu64,
				   t->path, (uint64_t)st->st_size, t->header_size, t->buffer_size);
	r = shms_header_read(h, fd, st, NULL);
	if (r < 0)
		return r;
	if (h->object.layout.header_size != t->header_size) {
		shms_header_deinit(h);
		return -EBADMSG;
	}
	return 0;
}

/* By reads: another user may truncate his file meanwhile. */
static int verify(int fd, const struct shms_object *o)
{
	_free_ char *chunk = malloc(CHUNK);
	uint64_t hash[2];
	int r;

	if (!o->checksum || !o->layout.buffer_size)
		return 0;
	r = chunk ? shms_hash_file(fd, o->layout.header_size, o->layout.buffer_size, chunk, CHUNK,
				   hash)
		  : -ENOMEM;
	return r < 0 ? r : memcmp(hash, o->buffer_hash, sizeof(hash)) == 0 ? 0 : -EBADMSG;
}

/* Error of the adoption for a failed open of the ticket's path. */
static int open_error(int r)
{
	switch (-r) {
	case ENOENT:
	case ENOTDIR:
		return -ESTALE; /* taken, ended, or its store is gone */
	case ELOOP:
	case ENXIO:
	case ENODEV:
	case EISDIR:
		return -EBADMSG;
	default:
		return r;
	}
}

/* Its owner may get the object back one day, under another name, and knows of no handoff. */
static void expose(const struct shmstore *s, const struct source *source)
{
	char store[SHMSTORE_TICKET_PATH];
	size_t n = strlen(source->path) - strlen(strrchr(source->path, '/')) -
		   strlen("/" SHMS_DIR_OBJECTS);

	memcpy(store, source->path, n);
	store[n] = '\0';
	shms_page_exposed(s->p->fd, store);
}

static int take(struct shmstore *s, const struct shms_keyname *k, const struct source *source,
		const struct shms_header *h, bool replace)
{
	const struct shms_object *o = &h->object;
	struct shms_publish_from from = {
		.dir_fd = source->dir_fd,
		.name = source->name,
		.inode = source->st.st_ino,
		.bytes = shms_blocks(&source->st),
		.move = source->kind != KIND_OBJECT,
		.shared = source->kind == KIND_OBJECT || source->st.st_nlink > 1,
		.other_key = o->layout.key_size != k->key_size ||
			     memcmp(o->key, k->key, k->key_size) != 0,
	};
	struct shms_charge charge;
	struct shms_keyname own;
	struct stat named;
	int r;

	if (source->kind == KIND_OBJECT) {
		/* Does the name still mean the file that we hold open? If it does, its owner
		 * cannot recycle it from now on. */
		if (fstatat(from.dir_fd, from.name, &named, AT_SYMLINK_NOFOLLOW) < 0)
			return -ESTALE;
		if (named.st_ino != from.inode)
			return -EAGAIN;
		expose(s, source);
	}
	/* Held already, it takes no more than it did. */
	r = shms_credit_take_linked(s, from.bytes, &charge);
	if (r < 0) {
		own = *k;
		if (shms_key_find(s->objects_fd, &own) != 1 ||
		    fstatat(s->objects_fd, own.name, &named, AT_SYMLINK_NOFOLLOW) < 0 ||
		    named.st_ino != from.inode)
			return r;
	}
	r = shms_publish_named(s, &from, k, &o->layout, replace);
	shms_credit_end(s, &charge, r == 0);
	return r == -ENOENT ? -ESTALE : r;
}

/* The ticket names a stub: the object stays in the disk tier. The first get checks its tier file */
static int adopt_stub(struct shmstore *s, const struct shms_keyname *k,
		      const struct shmstore_ticket *t, struct source *source, bool replace)
{
	struct shms_layout l = {.header_size = t->header_size, .buffer_size = t->buffer_size};
	struct shms_publish_from from = {.name = source->name,
					 .move = source->kind != KIND_OBJECT,
					 .other_key = true,
					 .shared = true};
	_fd_ int dir_fd = open_directory(s, source);
	struct shms_stub stub;
	int r;

	if (dir_fd < 0)
		return open_error(dir_fd);
	r = shms_stub_read(dir_fd, source->name, &stub, NULL);
	if (r < 0)
		return r == -ENOENT ? -ESTALE : shms_stub_none(r) ? -EBADMSG : shms_error(r);
	if (stub.uid != s->uid)
		return shms_detail(-EPERM, NULL, "%.256s is user %u's", t->path,
				   (unsigned)stub.uid);
	if (stub.header_size != t->header_size || stub.buffer_size != t->buffer_size)
		return -EBADMSG;
	if (!shms_tier_there(s->p))
		return -EBADMSG;
	r = shms_tier_join(s);
	if (r < 0)
		return r;
	if (source->kind == KIND_OBJECT)
		expose(s, source);
	from.dir_fd = dir_fd;
	from.inode = stub.inode;
	r = shms_publish_named(s, &from, k, &l, replace);
	return r == -ENOENT ? -ESTALE : r;
}

/*
 * Copies the object, then removes the lease: a kill in between leaves both. Two adoptions of one
 * ticket at once may both succeed. flags: of the put.
 */
static SHMS_ASIDE int adopt_copy(struct shmstore *s, const struct shms_keyname *k,
				 const struct shms_packticket *ticket,
				 const struct shms_pack_sizes *expect, unsigned flags)
{
	struct iovec buffers[SHMS_SEGOWN_BUFFERS];
	struct shms_packcopy copy;
	uint64_t off = 0;
	int r = shms_packcopy_read(s->p->fd, ticket, shms_now_boot_ms(), &copy);

	if (r < 0)
		return r;
	if (copy.object.buffer_size != expect->buffer ||
	    shms_pack_header_size(&copy.object) != expect->header) {
		free(copy.extent);
		return shms_detail(-EBADMSG, NULL, "%.256s is of another size than the ticket says",
				   ticket->path);
	}
	for (size_t i = 0; i < copy.object.n_buffers; i++) {
		buffers[i] = (struct iovec){copy.extent + off, copy.sizes[i]};
		off = shms_layout_next(off, copy.sizes[i]);
	}
	if (copy.object.flags & SHMS_SEGPACKED_CHECKSUM)
		flags |= SHMSTORE_CHECKSUM;
	if (copy.object.flags & SHMS_SEGPACKED_PINNED)
		flags |= SHMSTORE_PIN;
	/* The copy gets a checksum of its own: damage must not become what is right. */
	r = shms_pack_verify(&copy.object, copy.extent)
		    ? shmstore_put(s, k->key, k->key_size, copy.extent + copy.object.metadata_off,
				   copy.object.metadata_size, buffers, copy.object.n_buffers, flags)
		    : -EBADMSG;
	free(copy.extent);
	if (r == 0)
		(void)shms_packcopy_end(s->p->fd, ticket);
	return r > 0 ? -ENOSPC : r; /* the arbiter would have it wait, which an adoption does not */
}

static int adopt_packed(struct shmstore *s, const struct shms_keyname *k,
			const struct shmstore_ticket *t, const struct source *from, unsigned flags)
{
	const struct shms_pack_sizes expect = {t->header_size, t->buffer_size,
					       (flags & SHMSTORE_VERIFY) != 0};
	struct shms_pack *pack = shms_packed_pack(s);
	struct shms_charge charge;
	int r = shms_credit_take_linked(s, t->header_size + t->buffer_size, &charge);

	/* Held already, it takes no more than it did. */
	if (r < 0 && !(pack && shms_pack_is_ticket_of(pack, k->key, k->key_size, &from->packed)))
		return r;
	r = shms_packed_adopt(s, k, &from->packed, &expect, (flags & SHMSTORE_REPLACE) != 0,
			      shms_room_unbooked(s));
	shms_credit_end(s, &charge, r == 0);
	if (r == -ENOTSUP)
		r = adopt_copy(s, k, &from->packed, &expect, flags & SHMSTORE_REPLACE);
	if (r == -EPERM)
		return shms_detail(
			-EPERM, NULL,
			"%.256s is another user's: only shmstore_handoff_to() hands it to others",
			t->path);
	return r < 0 ? open_error(r) : r;
}

static SHMS_ASIDE int adopt_file(struct shmstore *s, struct shms_keyname *k,
				 const struct shmstore_ticket *t, struct source *from,
				 unsigned flags)
{
	struct shms_header h;
	int r;

	shms_keyname_name(k);
	_fd_ int dir_fd = s->p->open_to_others ? open_directory(s, from) : -1;
	if (dir_fd >= 0) {
		from->dir_fd = dir_fd;
	} else if (s->p->open_to_others) {
		return open_error(dir_fd);
	} else {
		from->dir_fd = s->p->fd;
		from->name = from->path;
	}
	_fd_ int fd =
		shms_openat_beneath(from->dir_fd, from->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
	if (fd == -ELOOP) {
		from->name = strrchr(from->path, '/') + 1;
		return adopt_stub(s, k, t, from, (flags & SHMSTORE_REPLACE) != 0);
	}
	if (fd < 0)
		return open_error(fd);
	r = check_file(s, fd, t, from, &h);
	if (r < 0)
		return r;
	if (flags & SHMSTORE_VERIFY)
		r = verify(fd, &h.object);
	if (r == 0)
		r = take(s, k, from, &h, (flags & SHMSTORE_REPLACE) != 0);
	shms_header_deinit(&h);
	return r;
}

/* As shmstore_adopt(), and -EAGAIN: the object's name means another file than it did before. */
static int adopt_once(struct shmstore *s, struct shms_keyname *k, const struct shmstore_ticket *t,
		      unsigned flags)
{
	struct source from;
	int r = check_path(s, t, &from);

	if (r < 0)
		return r;
	return from.kind == KIND_PACKED ? adopt_packed(s, k, t, &from, flags)
					: adopt_file(s, k, t, &from, flags);
}

int shmstore_adopt(struct shmstore *s, const void *key, size_t key_size,
		   const struct shmstore_ticket *ticket, unsigned flags)
{
	struct shms_keyname k;
	int r;

	if (!ticket || (flags & ~(SHMSTORE_REPLACE | SHMSTORE_VERIFY)))
		return !ticket ? shms_detail_null("ticket")
			       : shms_detail_flags(flags, SHMSTORE_REPLACE | SHMSTORE_VERIFY);
	r = shms_keyname_key(&k, key, key_size);
	if (r < 0)
		return r;
	shms_packgive(s);
	r = -EAGAIN;
	/* An object that its owner names may be demoted, brought back or replaced while it is
	 * looked at. */
	for (int i = 0; i < TRIES && r == -EAGAIN; i++)
		r = adopt_once(s, &k, ticket, flags);
	if (r < 0)
		return shms_error(r == -EAGAIN ? -ESTALE : r);
	shms_count(&s->ledger->adopt_n, 1);
	shms_count(&s->ledger->adopt_bytes, ticket->header_size + ticket->buffer_size);
	return 0;
}
