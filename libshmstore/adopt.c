/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adopt.c: takes the object of a ticket into a store.
 *
 * Ticket and file are a peer's: input. The path must lie in our partition by its text, and is opened so that the kernel refuses
 * what the text hides (symlinks, other mounts). The open descriptor is what is checked: type, owner, size, header. Only then the
 * lease is moved into objects/: one rename consumes it and makes it ours, so that a ticket is good for one adoption and a kill
 * leaves either the lease or the object.
 * A path to an object in a store's objects/ is taken too (a peer of the same user may name it), by a link; never one in
 * recycle/, whose bytes are about to change.
 */
#include <errno.h>
#include <fcntl.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "lease.h"
#include "object.h"
#include "publish.h"
#include "store.h"
#include "sys.h"

enum {
	KIND_LEASE,
	KIND_OBJECT
};

/* Is the last component but one of that name? */
static bool in_dir(const char *path, const char *last, const char *dir)
{
	size_t n = strlen(dir);

	return (size_t)(last - path) > n + 1 && last[-1] == '/' && strncmp(last - 1 - n, dir, n) == 0 &&
	       last[-2 - (ssize_t)n] == '/';
}

/* Every component is a plain name. */
static bool plain_path(const char *path)
{
	while (*path) {
		size_t n = strcspn(path, "/");

		if (n == 0 || (n == 1 && path[0] == '.') || (n == 2 && path[0] == '.' && path[1] == '.'))
			return false;
		path += n;
		if (*path == '/' && *++path == '\0')
			return false;
	}
	return true;
}

/* The ticket's path relative to the partition, and what it is. */
static int check_path(const struct shmstore *s, const struct shmstore_ticket *t, const char **ret_path, int *ret_kind)
{
	size_t n = strlen(s->p->path);
	const char *path, *last;
	uint64_t expiry;

	if (!memchr(t->path, '\0', sizeof(t->path)))
		return -EINVAL;
	if (strncmp(t->path, s->p->path, n) != 0 || t->path[n] != '/')
		return -EPERM;
	path = t->path + n + 1;
	if (!plain_path(path))
		return -EPERM;
	last = strrchr(path, '/');
	if (!last)
		return -EPERM;
	last++;
	if (in_dir(path, last, SHMS_DIR_HANDOFF) && shms_lease_parse(last, &expiry)) {
		if (expiry <= shms_now_boot_ms())
			return -ESTALE;
		*ret_kind = KIND_LEASE;
	} else if (in_dir(path, last, SHMS_DIR_OBJECTS)) {
		*ret_kind = KIND_OBJECT;
	} else {
		return -EPERM;
	}
	*ret_path = path;
	return 0;
}

static int check_file(const struct shmstore *s, int fd, const struct shmstore_ticket *t, struct stat *st,
		      struct shms_header *h)
{
	int r;

	if (fstat(fd, st) < 0)
		return -errno;
	if (!S_ISREG(st->st_mode))
		return -EBADMSG;
	if (st->st_dev != s->p->device)
		return -EXDEV;
	if (st->st_uid != s->uid)
		return -EPERM;
	if (t->header_size > (uint64_t)st->st_size || (uint64_t)st->st_size - t->header_size != t->buffer_size)
		return -EBADMSG;
	r = shms_header_read(h, fd, st, NULL);
	if (r < 0)
		return r;
	if (h->object.layout.header_size != t->header_size) {
		shms_header_deinit(h);
		return -EBADMSG;
	}
	return 0;
}

static int verify(int fd, const struct shms_object *o)
{
	uint64_t size = o->layout.header_size + o->layout.buffer_size;
	void *map;
	bool good;

	if (!o->checksum || !o->layout.buffer_size)
		return 0;
	map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	good = shms_format_verify_buffers(o, (const char *)map + o->layout.header_size);
	munmap(map, size);
	return good ? 0 : -EBADMSG;
}

/* What a failed open of the ticket's path means. */
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

static int take(struct shmstore *s, const struct shms_keyname *k, const char *path, int kind, const struct stat *st,
		const struct shms_header *h, bool replace)
{
	const struct shms_object *o = &h->object;
	struct shms_publish_from from = {
		.dir_fd = s->p->fd,
		.name = path,
		.inode = st->st_ino,
		.bytes = shms_blocks(st),
		.move = kind == KIND_LEASE,
		.other_key = o->layout.key_size != k->key_size || memcmp(o->key, k->key, k->key_size) != 0,
	};
	struct stat named;
	int r;

	if (kind == KIND_OBJECT) {
		/* Does the name still mean the file that we hold open? If it does, its owner cannot recycle it from now on. */
		if (fstatat(s->p->fd, path, &named, AT_SYMLINK_NOFOLLOW) < 0 || named.st_ino != st->st_ino)
			return -ESTALE;
	}
	r = shms_publish_named(s, &from, k, &o->layout, replace);
	return r == -ENOENT ? -ESTALE : r;
}

static int adopt(struct shmstore *s, const struct shms_keyname *k, const struct shmstore_ticket *t, unsigned flags)
{
	struct shms_header h;
	const char *path;
	struct stat st;
	int kind, r = check_path(s, t, &path, &kind);

	if (r < 0)
		return r;
	_fd_ int fd = shms_open_beneath(s->p->fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return open_error(fd);
	r = check_file(s, fd, t, &st, &h);
	if (r < 0)
		return r;
	if (flags & SHMSTORE_VERIFY)
		r = verify(fd, &h.object);
	if (r == 0)
		r = take(s, k, path, kind, &st, &h, (flags & SHMSTORE_REPLACE) != 0);
	shms_header_deinit(&h);
	return r;
}

int shmstore_adopt(struct shmstore *s, const void *key, size_t key_size, const struct shmstore_ticket *ticket,
		   unsigned flags)
{
	struct shms_keyname k;
	int r = shms_store_usable(s, true);

	if (r < 0)
		return r;
	if (!ticket || (flags & ~(SHMSTORE_REPLACE | SHMSTORE_VERIFY)))
		return -EINVAL;
	r = shms_keyname_init(&k, key, key_size);
	if (r < 0)
		return r;
	r = adopt(s, &k, ticket, flags);
	if (r < 0)
		return shms_error(r);
	shms_count(&s->ledger->adopt_n, 1);
	shms_count(&s->ledger->adopt_bytes, ticket->header_size + ticket->buffer_size);
	return 0;
}
