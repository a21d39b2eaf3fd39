/* SPDX-License-Identifier: Apache-2.0 */
/* sidecar.h: the file beside an object whose name is only a hash of its key, that holds the key (docs/format.md). */
#ifndef SHMS_SIDECAR_H
#define SHMS_SIDECAR_H

#include <stddef.h>

/* Writes the sidecar of the hashed name. It always holds the one key that the name stands for, so one that is there is right. 0, -errno. */
int shms_sidecar_write(int objects_fd, const char *name, const void *key, size_t key_size);

#endif
