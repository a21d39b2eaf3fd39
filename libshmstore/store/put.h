/* SPDX-License-Identifier: Apache-2.0 */
/* put.h: other ways to put than by a copy of the caller's bytes. */
#ifndef SHMS_PUT_H
#define SHMS_PUT_H

#include <stddef.h>
#include <sys/uio.h>

struct shmstore;
struct shms_keyname;

/*
 * Bytes that are an object already become a second name of it. flags: of the put.
 * SHMSTORE_CHECKSUM: only an object that has one will do. 1: done; 0: no alias, put it; -errno:
 * -EEXIST.
 */
int shms_alias_try(struct shmstore *s, struct shms_keyname *k, const void *header,
		   size_t header_size, const struct iovec *buffers, size_t n_buffers,
		   unsigned flags);
/* What a packed object does before it does what only files can: it becomes one, under its key.
 * 0: the key is no packed object's (any more), or of none at all; an outcome of the arbiter
 * (> 0), -errno as a put's. */
int shms_put_as_file(struct shmstore *s, const struct shms_keyname *k);

#endif
