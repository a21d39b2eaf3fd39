/* SPDX-License-Identifier: Apache-2.0 */
/* sidecar.h: the file beside an object whose name is only a hash of its key, that holds
 * the key (docs/format.md). */
#ifndef SHMS_SIDECAR_H
#define SHMS_SIDECAR_H

#include <stddef.h>

/* Writes the sidecar of the hashed name. One beside an object, or a stub, is right: what
 * is there stays. 0, -errno. */
int shms_sidecar_write(int objects_fd, const char *name, const void *key, size_t key_size);
/* Takes away what is beside no object: a delete that was killed left it, and it may be
 * another key's of the same hash. */
void shms_sidecar_drop(int objects_fd, const char *name);

#endif
