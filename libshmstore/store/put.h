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
/* Makes a packed object a file under the same key, for operations that only files have. Returns 0
 * if the key names no packed object afterwards, or no object at all; an outcome of the arbiter
 * (> 0); -errno as a put does. */
int shms_put_as_file(struct shmstore *s, const struct shms_keyname *k);

#endif
