/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object.c: an object's header, read into private memory and validated there, so that no field
 * can change after it was checked. One small pread covers nearly every header; a page fault on
 * the mapping would cost more.
 */
#include "object.h"

#include <errno.h>
#include <fcntl.h>
#include <shmstore/shmstore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "name.h"
#include "sys.h"
#include "xxh3.h"

/*
 * Does the file hold so many bytes from offset on? Its size says nothing: a sparse file of one page
 * may be any size, and who believed its header would take the memory that its maker did not. The
 * blocks are what somebody paid for. A file system that compresses (partitions on disk only) has
 * fewer blocks than bytes; there it is enough that no hole is in the way. 0, -EBADMSG, -errno.
 */
static int holds(int fd, uint64_t offset, uint64_t bytes)
{
	struct stat st;
	off_t hole;

	if (fstat(fd, &st) == 0 && shms_blocks(&st) >= bytes)
		return 0;
	hole = shms_seek(fd, offset, SEEK_HOLE);
	return hole == -ENOSYS                                 ? -ENOSYS
	       : hole >= 0 && (uint64_t)hole >= offset + bytes ? 0
							       : -EBADMSG;
}

/* Has the first need bytes read, of which have are in h->small. 0, -errno. */
static int read_more(struct shms_header *h, int fd, uint64_t offset, uint64_t need, size_t have)
{
	unsigned char *head = h->small;
	ssize_t n;

	if (need > sizeof(h->small)) {
		int r = holds(fd, offset, need);
		if (r < 0)
			return r;
		head = malloc(need);
		if (!head)
			return -ENOMEM;
		h->head = head;
		memcpy(head, h->small, have);
	}
	n = shms_pread_all(fd, head + have, need - have, offset + have);
	if (n < 0)
		return shms_error((int)n);
	return have + (size_t)n == need ? 0 : -EBADMSG;
}

int shms_header_read_at(struct shms_header *h, int fd, uint64_t offset, uint64_t file_size,
			const char **ret_reason)
{
	const char *reason = "cannot be read";
	uint64_t need, have;
	ssize_t n;
	int r;

	h->head = NULL;
	n = shms_pread_all(fd, h->small,
			   file_size < SHMS_OBJECT_FIRST ? file_size : SHMS_OBJECT_FIRST, offset);
	r = n < 0 ? shms_error((int)n) : 0;
	if (r < 0)
		goto out;
	have = (uint64_t)n;
	if (shms_format_need(h->small, have, file_size, &need) == 0 && need > have) {
		r = read_more(h, fd, offset, need, have);
		reason = r == -EBADMSG ? "the file does not hold the header that it announces"
				       : reason;
		have = need;
	}
	if (r == 0)
		r = shms_format_parse(h->head ? h->head : h->small, have, file_size, &h->object,
				      &reason);
out:
	if (r < 0)
		shms_header_deinit(h);
	if (ret_reason)
		*ret_reason = r < 0 ? reason : NULL;
	return r;
}

int shms_header_read(struct shms_header *h, int fd, const struct stat *st, const char **ret_reason)
{
	if (S_ISREG(st->st_mode))
		return shms_header_read_at(h, fd, 0, (uint64_t)st->st_size, ret_reason);
	h->head = NULL;
	if (ret_reason)
		*ret_reason = "not a regular file";
	return -EBADMSG;
}

int shms_hash_file(int fd, uint64_t offset, uint64_t size, void *chunk, size_t chunk_size,
		   uint64_t ret_hash[2])
{
	XXH3_state_t *state = XXH3_createState();
	ssize_t n = 1;

	if (!state)
		return -ENOMEM;
	XXH3_128bits_reset(state);
	while (size && n > 0) {
		n = shms_pread_all(fd, chunk, size < chunk_size ? size : chunk_size, offset);
		if (n > 0)
			XXH3_128bits_update(state, chunk, (size_t)n);
		offset += n > 0 ? (uint64_t)n : 0;
		size -= n > 0 ? (uint64_t)n : 0;
	}
	shms_xxh3_digest(state, ret_hash);
	XXH3_freeState(state);
	return n < 0 ? shms_error((int)n) : size ? -EBADMSG : 0;
}

int shms_header_glance(struct shms_glance *g, int fd, const struct stat *st)
{
	ssize_t n = S_ISREG(st->st_mode) ? shms_pread_all(fd, g->begin, sizeof(g->begin), 0) : 0;

	if (n < 0)
		return shms_error((int)n);
	return shms_format_glance(g->begin, (size_t)n, (uint64_t)st->st_size, &g->key,
				  &g->key_size);
}

void shms_header_deinit(struct shms_header *h)
{
	free(h->head);
	h->head = NULL;
}

/* The key in the sidecar of a hashed name. -ENOENT if there is none. */
static int sidecar_key(int objectsfd, const char *name, unsigned char *ret_key, size_t *ret_size)
{
	char sidecar[SHMS_NAME_SIZE];
	unsigned char key[SHMSTORE_KEY_MAX + 1];
	ssize_t n;

	shms_name_sidecar(name, sidecar);
	_fd_ int fd = openat(objectsfd, sidecar, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return shms_error(errno);
	n = shms_pread_all(fd, key, sizeof(key), 0);
	if (n < 0)
		return shms_error((int)n);
	if (n > (ssize_t)SHMSTORE_KEY_MAX || !shms_name_fits(name, key, (size_t)n))
		return -EBADMSG;
	memcpy(ret_key, key, (size_t)n);
	*ret_size = (size_t)n;
	return 0;
}

/* The key that the object was made with. -EAGAIN: a stub stands there by now. */
static int first_key(int objectsfd, const char *name, struct shms_glance *g)
{
	struct stat st;
	_fd_ int fd = shms_open_object(objectsfd, name);

	if (fd < 0)
		return fd == -ELOOP ? -EAGAIN : shms_error(fd);
	return fstat(fd, &st) < 0 ? shms_error(errno) : shms_header_glance(g, fd, &st);
}

int shms_entry_key(int objectsfd, const char *name, const struct shms_header *h,
		   unsigned char *ret_key, size_t *ret_size)
{
	unsigned char plain[SHMS_NAME_SIZE];
	struct shms_glance own;
	int r;

	switch (shms_name_decode(name, plain, ret_size)) {
	case SHMS_NAME_PLAIN:
		memcpy(ret_key, plain, *ret_size);
		return 0;
	case SHMS_NAME_HASHED:
		break;
	case SHMS_NAME_SIDECAR:
	case SHMS_NAME_FOREIGN:
	default:
		return -EBADMSG;
	}
	/* A demotion writes the sidecar first: if that and then the object are gone, try again. */
	for (int i = 0; i < 2; i++) {
		r = sidecar_key(objectsfd, name, ret_key, ret_size);
		if (r != -ENOENT)
			return r;
		r = h ? 0 : first_key(objectsfd, name, &own);
		if (r != -EAGAIN)
			break;
	}
	if (r < 0)
		return r == -EAGAIN ? -EBADMSG : r;
	if (h) {
		own.key = h->object.key;
		own.key_size = h->object.layout.key_size;
	}
	if (!shms_name_fits(name, own.key, own.key_size))
		return -EBADMSG;
	memcpy(ret_key, own.key, own.key_size);
	*ret_size = own.key_size;
	return 0;
}

/* ---- sidecars -------------------------------------------------------------------------------- */

/* Written without a name and linked whole, like everything that others read. */

int shms_sidecar_write(int objects_fd, const char *name, const void *key, size_t key_size)
{
	char sidecar[SHMS_NAME_SIZE];
	struct stat dir;
	int r;
	_fd_ int fd = shms_unnamed_part(objects_fd, O_WRONLY, shms_mode_in(objects_fd, 0400));

	if (fd < 0)
		return -errno;
	/* Root's hand, the user's file: its store is to read it. */
	if (geteuid() == 0 &&
	    (fstat(objects_fd, &dir) < 0 || fchown(fd, dir.st_uid, (gid_t)-1) < 0))
		return -errno;
	r = shms_write_at(fd, key, key_size, 0);
	if (r < 0)
		return r;
	shms_name_sidecar(name, sidecar);
	r = shms_link_fd(fd, objects_fd, sidecar);
	return r == -EEXIST ? 0 : r;
}

void shms_sidecar_drop(int objects_fd, const char *name)
{
	char sidecar[SHMS_NAME_SIZE];

	shms_name_sidecar(name, sidecar);
	unlinkat(objects_fd, sidecar, 0);
}
