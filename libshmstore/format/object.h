/* SPDX-License-Identifier: Apache-2.0 */
/* object.h: opens and validates an object's file: the one place where bytes of a file
 * become a struct shms_object. */
#ifndef SHMS_OBJECT_H
#define SHMS_OBJECT_H

#include <shmstore/shmstore.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "format.h"

#define SHMS_OBJECT_FIRST 512u  /* read at once: nearly every header */
#define SHMS_OBJECT_SMALL 4096u /* kept without the heap */

/* A header read from a file. head is inline for headers up to SHMS_OBJECT_SMALL, else heap. */
struct shms_header {
	struct shms_object object; /* points into head */
	unsigned char *head;
	_Alignas(8) unsigned char small[SHMS_OBJECT_SMALL];
};

/* Reads and validates the header of the regular file fd, which is believed as far as the file has
 * blocks. 0, -EBADMSG, -ENOTSUP, -ENOMEM, -EIO. ret_reason may be NULL. On success
 * shms_header_deinit() is owed. */
int shms_header_read(struct shms_header *h, int fd, const struct stat *st, const char **ret_reason);
/* The same where the object is a part of the file: file_size bytes from offset on. */
int shms_header_read_at(struct shms_header *h, int fd, uint64_t offset, uint64_t file_size,
			const char **ret_reason);
void shms_header_deinit(struct shms_header *h);

/* XXH3-128 of size bytes of the file from offset on, low half first; chunk: room to read into. 0;
 * -EBADMSG: the file ends before; -ENOMEM; -errno: it cannot be read. */
int shms_hash_file(int fd, uint64_t offset, uint64_t size, void *chunk, size_t chunk_size,
		   uint64_t ret_hash[2]);

/* The begin of an object, and its key. */
struct shms_glance {
	const void *key; /* in begin */
	size_t key_size;
	_Alignas(8) unsigned char begin[sizeof(struct shms_superblock) + SHMSTORE_KEY_MAX];
};
/* For surveys, which look at files of all users: reads superblock and key and no more,
 * whatever the header announces. 0: it is the begin of a complete object as far as that tells;
 * -EBADMSG, -ENOTSUP, -EIO. */
int shms_header_glance(struct shms_glance *g, int fd, const struct stat *st);
/*
 * The key of the entry called name in objectsfd: out of the name, or, where that is a hash, out of
 * the sidecar or the header h (h may be NULL: then the object is opened). ret_key has room for
 * SHMSTORE_KEY_MAX bytes. 0, -EBADMSG, -ENOENT.
 */
int shms_entry_key(int objectsfd, const char *name, const struct shms_header *h,
		   unsigned char *ret_key, size_t *ret_size);

/* The file beside an object whose name is only a hash of its key, that holds
 * the key (docs/format.md). */

/* Writes the sidecar of the hashed name. One beside an object, or a stub, is right: what
 * is there stays. 0, -errno. */
int shms_sidecar_write(int objects_fd, const char *name, const void *key, size_t key_size);
/* Takes away what is beside no object: a delete that was killed left it, and it may be
 * another key's of the same hash. */
void shms_sidecar_drop(int objects_fd, const char *name);

#endif
