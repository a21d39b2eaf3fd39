/* SPDX-License-Identifier: Apache-2.0 */
/* smallmap.h: private memory in which a small object is made that is to be packed (writer.c). One is kept for the next. */
#ifndef SHMS_SMALLMAP_H
#define SHMS_SMALLMAP_H

#include <stddef.h>

#define SHMS_SMALLMAP_SIZE ((size_t)96 << 10)

struct shmstore;

/* SHMS_SMALLMAP_SIZE bytes that no child inherits, with anything in them that was written to such before. NULL: no memory. */
void *shms_smallmap_take(struct shmstore *s);
/* Nobody can read or write there any more. */
void shms_smallmap_give(struct shmstore *s, void *map);
/* The handle goes. */
void shms_smallmap_deinit(struct shmstore *s);
/* In a forked child, which did not inherit it. */
void shms_smallmap_forked(struct shmstore *s);

#endif
