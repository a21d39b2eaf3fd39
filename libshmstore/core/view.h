/* SPDX-License-Identifier: Apache-2.0 */
/* view.h: a mapped object. Constant after it was made, but for its count. */
#ifndef SHMS_VIEW_H
#define SHMS_VIEW_H

#include <shmstore/shmstore.h>
#include <stdbool.h>
#include <stdint.h>

#include "format.h"
#include "object.h"
#include "pack.h"

struct shmstore_view {
	uint64_t magic;
	_Atomic uint64_t n_ref;
	struct shmstore *s; /* a reference to its memory only: the handle may be closed */
	void *map;          /* the whole file; NULL for an object without buffers */
	uint64_t map_size;
	bool cow;
	bool registered;
	/* packed is the view's: map is a part of its segment's, or a private one (cow) */
	bool is_packed;
	uid_t uid; /* the file's owner */
	uint64_t generation;
	uint64_t header_size, buffer_size;
	const void *key;
	size_t key_size;
	const void *metadata;
	size_t metadata_size;
	size_t n_buffers;
	const struct shms_entry *table;
	unsigned char *head;          /* a large header's memory, else NULL: all is in room */
	struct shms_pack_view packed; /* not set in a file's view */
	_Alignas(8) unsigned char room[];
};

/* Where an object's bytes are: an object's file, or a part of another one. */
struct shms_view_file {
	int fd;
	uint64_t offset; /* a multiple of the page */
	bool cow;
	uid_t uid; /* the file's owner */
};

/* Tells the ledger what views there are, which may change when the handle has gone. */
void shms_view_told(struct shmstore *s);
/*
 * Makes a view of the open, validated object h (whose heap memory it takes over) under
 * key. 0, -ENOMEM, -errno of mmap.
 */
int shms_view_new(struct shmstore *s, const struct shms_view_file *f, struct shms_header *h,
		  const void *key, size_t key_size, struct shmstore_view **ret);
/*
 * The same of a packed object, which is taken over, and given back when nothing needs it any more.
 * Without a pack it is a copy that is borrowed for the call. flags: of shmstore_get(). 0, -ENOMEM,
 * -EBADMSG.
 */
int shms_view_packed(struct shmstore *s, const struct shms_pack_view *packed, unsigned flags,
		     const void *key, size_t key_size, struct shmstore_view **ret);
/* A reference to the live view of SHMS_FORMAT_BIG bytes or more whose mapping
 * holds that address; NULL. */
struct shmstore_view *shms_view_find(const void *address);

#endif
