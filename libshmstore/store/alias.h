/* SPDX-License-Identifier: Apache-2.0 */
/* alias.h: a put whose bytes are an object already becomes a second name of it. */
#ifndef SHMS_ALIAS_H
#define SHMS_ALIAS_H

#include <stddef.h>
#include <sys/uio.h>

struct shmstore;
struct shms_keyname;

/* flags: of the put. SHMSTORE_CHECKSUM: only an object that has one will do. 1: done; 0: no
 * alias, put it; -errno: -EEXIST. */
int shms_alias_try(struct shmstore *s, struct shms_keyname *k, const void *header,
		   size_t header_size, const struct iovec *buffers, size_t n_buffers,
		   unsigned flags);

#endif
