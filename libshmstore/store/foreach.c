/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreach.c: the objects of a store. The directory is the index: this walks it, keeps nothing, and
 * bears with objects that come and go meanwhile.
 */
#include <errno.h>
#include <fcntl.h>
#include <shmstore/shmstore.h>
#include <string.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "detail.h"
#include "name.h"
#include "object.h"
#include "packed.h"
#include "parts.h"
#include "stub.h"
#include "sys.h"

/* A demoted object, as its stub tells it: its key is in its name or in the sidecar. */
static int describe_stub(struct shmstore *s, const char *name, struct shmstore_object_info *info,
			 unsigned char *key)
{
	struct shms_stub stub;
	struct stat st;
	int r = shms_stub_read(s->objects_fd, name, &stub, NULL);

	if (r == -EINVAL)
		return -ENOENT; /* another file by now */
	if (fstatat(s->objects_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? -ENOENT : shms_error(errno);
	*info = (struct shmstore_object_info){
		.size = sizeof(*info),
		.key = key,
		.inode = st.st_ino,
		.links = st.st_nlink,
		.mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
		.name = name,
		.demoted = r == 0,
		.error = r == -ENOENT ? 0 : shms_error(r),
	};
	if (r == -ENOENT)
		return r;
	if (r == 0) {
		info->header_size = stub.header_size;
		info->buffer_size = stub.buffer_size;
		info->generation = stub.generation;
		info->links = stub.n_names > 1 ? stub.n_names - 1 : 1; /* less the anchor */
		info->error = shms_entry_key(s->objects_fd, name, NULL, key, &info->key_size);
	}
	return 0;
}

/* Describes one entry. 0; -ENOENT: gone or no object's name; -errno. */
static int describe(struct shmstore *s, const char *name, struct shmstore_object_info *info,
		    unsigned char *key)
{
	unsigned char plain[SHMS_NAME_SIZE];
	enum shms_name_kind kind = shms_name_decode(name, plain, &info->key_size);
	struct shms_header h;
	struct stat st;
	int r;

	if (kind == SHMS_NAME_SIDECAR || kind == SHMS_NAME_FOREIGN)
		return -ENOENT;
	_fd_ int fd = shms_open_object(s->objects_fd, name);
	if (fd == -ELOOP)
		return describe_stub(s, name, info, key);
	if (fd < 0)
		return shms_error(fd);
	if (fstat(fd, &st) < 0)
		return shms_error(errno);
	*info = (struct shmstore_object_info){
		.size = sizeof(*info),
		.key = key,
		.key_size = info->key_size,
		.blocks = shms_blocks(&st),
		.inode = st.st_ino,
		.links = st.st_nlink,
		.mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
		.name = name,
		.pinned = (st.st_mode & S_ISVTX) != 0,
	};
	memcpy(key, plain, kind == SHMS_NAME_PLAIN ? info->key_size : 0);
	r = shms_header_read(&h, fd, &st, NULL);
	if (r == 0) {
		info->header_size = h.object.layout.header_size;
		info->buffer_size = h.object.layout.buffer_size;
		info->n_buffers = h.object.layout.n_buffers;
		info->generation = h.object.generation;
		info->checksum = h.object.checksum;
		if (kind == SHMS_NAME_HASHED)
			r = shms_entry_key(s->objects_fd, name, &h, key, &info->key_size);
		shms_header_deinit(&h);
	}
	if (r == -ENOMEM || r == -EMFILE)
		return r;
	info->error = r;
	if (r < 0 && kind == SHMS_NAME_HASHED)
		info->key_size = 0;
	return 0;
}

int shmstore_foreach(struct shmstore *s,
		     int (*fn)(const struct shmstore_object_info *info, void *arg), void *arg)
{
	unsigned char key[SHMSTORE_KEY_MAX];
	struct shmstore_object_info info;
	int r;

	if (!fn)
		return shms_detail_null("fn");
	if (s->readonly) {
		bool renewed;

		r = shms_renew(s, &renewed);
		if (r < 0)
			return r;
	}
	_names_ struct shms_names d = shms_names(s->objects_fd, ".");

	r = shms_error(d.error);
	while (r == 0 && shms_names_next(&d)) {
		r = describe(s, d.name, &info, key);
		r = r == 0 ? fn(&info, arg) : r == -ENOENT ? 0 : r;
	}
	r = r == 0 ? d.error : r;
	if (r == 0 && (s->readonly || shms_packed_pack(s)))
		r = shms_peek_each(s, fn, arg);
	return r;
}
