/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object.c: an object's header, read into private memory and validated there, so that no field can change after it was checked.
 * One small pread covers nearly every header; a page fault on the mapping would cost more.
 */
#include "object.h"

#include <errno.h>
#include <fcntl.h>
#include <shmstore/shmstore.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "name.h"
#include "sys.h"

/* Has the first need bytes read, of which have are in h->small. 0, -errno. */
static int read_more(struct shms_header *h, int fd, uint64_t offset, uint64_t need, size_t have)
{
	unsigned char *head = h->small;
	ssize_t n;

	if (need > sizeof(h->small)) {
		/* Bounded by the file's own size, which is memory that somebody paid for. */
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

int shms_header_read_at(struct shms_header *h, int fd, uint64_t offset, uint64_t file_size, const char **ret_reason)
{
	const char *reason = "cannot be read";
	uint64_t need, have;
	ssize_t n;
	int r;

	h->head = NULL;
	n = shms_pread_all(fd, h->small, file_size < SHMS_OBJECT_FIRST ? file_size : SHMS_OBJECT_FIRST, offset);
	r = n < 0 ? shms_error((int)n) : 0;
	if (r < 0)
		goto out;
	have = (uint64_t)n;
	if (shms_format_need(h->small, have, file_size, &need) == 0 && need > have) {
		r = read_more(h, fd, offset, need, have);
		have = need;
	}
	if (r == 0)
		r = shms_format_parse(h->head ? h->head : h->small, have, file_size, &h->object, &reason);
out:
	if (r < 0)
		shms_header_deinit(h);
	if (ret_reason)
		*ret_reason = r < 0 ? reason : NULL;
	return r;
}

int shms_header_read_sized(struct shms_header *h, int fd, uint64_t file_size, const char **ret_reason)
{
	return shms_header_read_at(h, fd, 0, file_size, ret_reason);
}

int shms_header_read(struct shms_header *h, int fd, const struct stat *st, const char **ret_reason)
{
	if (S_ISREG(st->st_mode))
		return shms_header_read_sized(h, fd, (uint64_t)st->st_size, ret_reason);
	h->head = NULL;
	if (ret_reason)
		*ret_reason = "not a regular file";
	return -EBADMSG;
}

void shms_header_deinit(struct shms_header *h)
{
	free(h->head);
	h->head = NULL;
}

/* The key in the sidecar of a hashed name. -ENOENT if there is none. */
static int sidecar_key(int objectsfd, const char *name, unsigned char *ret_key, size_t *ret_size)
{
	char sidecar[SHMS_NAME_SIZE], again[SHMS_NAME_SIZE];
	unsigned char key[SHMSTORE_KEY_MAX + 1];
	ssize_t n;

	shms_name_sidecar(name, sidecar);
	_fd_ int fd = openat(objectsfd, sidecar, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return shms_error(errno);
	n = shms_pread_all(fd, key, sizeof(key), 0);
	if (n < 0)
		return shms_error((int)n);
	if (n > (ssize_t)SHMSTORE_KEY_MAX || shms_name_encode(key, (size_t)n, again) != SHMS_NAME_HASHED ||
	    strcmp(again, name) != 0)
		return -EBADMSG;
	memcpy(ret_key, key, (size_t)n);
	*ret_size = (size_t)n;
	return 0;
}

int shms_entry_key(int objectsfd, const char *name, const struct shms_header *h, unsigned char *ret_key,
		   size_t *ret_size)
{
	unsigned char key[SHMS_NAME_SIZE];
	char again[SHMS_NAME_SIZE];
	struct shms_header own;
	struct stat st;
	int r;

	switch (shms_name_decode(name, key, ret_size)) {
	case SHMS_NAME_PLAIN:
		memcpy(ret_key, key, *ret_size);
		return 0;
	case SHMS_NAME_HASHED:
		break;
	case SHMS_NAME_SIDECAR:
	case SHMS_NAME_FOREIGN:
	default:
		return -EBADMSG;
	}
	r = sidecar_key(objectsfd, name, ret_key, ret_size);
	if (r != -ENOENT)
		return r;
	if (!h) {
		_fd_ int fd = openat(objectsfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

		if (fd < 0 || fstat(fd, &st) < 0)
			return shms_error(errno);
		r = shms_header_read(&own, fd, &st, NULL);
		if (r < 0)
			return r;
		h = &own;
	} else {
		own.head = NULL;
	}
	r = -EBADMSG;
	if (shms_name_encode(h->object.key, h->object.layout.key_size, again) == SHMS_NAME_HASHED &&
	    strcmp(again, name) == 0) {
		*ret_size = h->object.layout.key_size;
		memcpy(ret_key, h->object.key, *ret_size);
		r = 0;
	}
	shms_header_deinit(&own);
	return r;
}
